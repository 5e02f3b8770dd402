#pragma once
#include <optional>
#include <string>
#include <vector>

#include "layers/parameters/model_ranks.h"
#include "layers/parameters/parameters.h"
#include "layers/rope.h"
#include "ops/selection.h"
#include "quantizers/quantizers.h"

// What the parts of a model are built from. Each has a scope, "layers.0." for what is in a layer: names below
// are those behind it.
namespace temper::layers {

// Declares parameters: behind the scope of the model and that of Hugging Face's files.
class WeightScope {
 public:
  // `layer`: of the decoder, which is that of all weights declared here; none: they are in no layer.
  WeightScope(WeightTable& table, std::string scope, std::string source_scope,
              std::optional<int64_t> layer = {})
      : table_(table), scope_(std::move(scope)), source_scope_(std::move(source_scope)), layer_(layer) {}

  // A vector that does not decay: a norm's weight or a bias.
  void vector(const std::string& name, const WeightAxis& axis, const std::vector<WeightSource>& sources,
              bool zeros = false, std::vector<WeightSegment> segments = {});
  // The weight of a norm of the residual stream.
  void norm_of_stream(const std::string& name, const WeightSource& source, bool zeros);
  // A linear's weight [out, in], whose rows are those of `modules`, and its bias [out] where it has one.
  struct Matrix {
    WeightAxis out, in;
    int64_t width = 0;  // of in
    bool bias = false;
    std::vector<WeightSegment> segments = {};  // of out; empty: each of the modules
  };
  void linear(const std::string& name, const Matrix& matrix, const std::vector<WeightSource>& modules);
  // A matrix that is no linear of quantizers, nor one that "all linears" of adapters has.
  // `stacked`: the module's name in files that have experts as stacked tensors.
  void router(const std::string& name, const Matrix& matrix, const WeightSource& module,
              const std::string& stacked);
  // The same for `experts` matrices of equal sizes, which stand above one another: `modules` are those of the
  // first, the second, …, or files have all of them as one tensor `stacked` [experts, rows of one, width] or,
  // where `transposes`, [experts, width, rows of one].
  void experts(const std::string& name, const Matrix& matrix, int64_t experts,
               const std::vector<WeightSource>& modules, const std::string& stacked, bool transposes);
  // Matrices, and their biases where `matrix` has them, of `experts` experts of which files have one tensor
  // `module` [experts, width, rows of one] and `module`_bias [experts, rows of one]; `alternating` as
  // WeightSpec says. Adapters do not target them.
  void transposed_experts(const std::string& name, const Matrix& matrix, int64_t experts,
                          const WeightSource& module, bool alternating);
  // A vector of one source that is kept in float32, whatever the model's dtype, and does not decay.
  // `buffer`: no gradient trains it.
  void float32_vector(const std::string& name, const WeightAxis& axis, const WeightSource& source,
                      bool buffer = false);
  // The weight of a convolution of each channel by itself, [channels, 1, width].
  void convolution(const std::string& name, const WeightAxis& axis, int64_t width, const WeightSource& module,
                   std::vector<WeightSegment> segments);
  // A tensor of files that is not loaded, with the reason.
  void ignore(const std::string& source, const std::string& reason);

 private:
  void add(WeightSpec spec);  // to the table, as one of the layer

  WeightTable& table_;
  std::string scope_, source_scope_;
  std::optional<int64_t> layer_;
};

// How a run changes the routers of a model, whatever its family.
struct RouterOptions {
  bool float32 = false;   // they multiply in float32, whatever the model computes in
  bool balanced = false;  // tokens take experts in turn: for measuring speed, as a model learns nothing so

  bool operator==(const RouterOptions&) const = default;
};

// Names the ops of modules, whose kernels are then chosen at once.
class OpScope {
 public:
  OpScope(ops::Binder& binder, std::string scope, DType dtype, const RouterOptions& routers = {},
          int expert_ranks = 1, const quantizers::QuantizerPlan* quantizers = nullptr)
      : binder_(binder),
        scope_(std::move(scope)),
        dtype_(dtype),
        routers_(routers),
        expert_ranks_(expert_ranks),
        quantizers_(quantizers) {}

  DType dtype() const { return dtype_; }
  const RouterOptions& routers() const { return routers_; }
  int expert_ranks() const { return expert_ranks_; }  // that divide experts between them
  // Whether a quantizer is planned for them, or calibrations ask for them for the factors of their columns.
  bool reads_inputs(const std::string& module) const;
  const quantizers::PlannedQuantizer* input_quantizer(
      const std::string& module) const;  // null: there is none
  template <class Op>
  void use(const std::string& module, const typename Op::Signature& signature) {
    binder_.use<Op>(scope_ + module, signature);
  }
  void linear(const std::string& module, int64_t in, int64_t out, bool bias);  // and what adapters add to it

 private:
  ops::Binder& binder_;
  std::string scope_;
  DType dtype_;
  RouterOptions routers_;
  int expert_ranks_;
  const quantizers::QuantizerPlan* quantizers_;
};

// The rotary tables of a model, one for all mixers that rotate alike.
class RopeTableSet {
 public:
  RopeTableSet(int64_t max_positions, Device device) : max_positions_(max_positions), device_(device) {}

  size_t add(const RopeConfig& config, int64_t head_dim);  // its place in what up_to() returns
  // On the model's device, for at least `positions` positions; an Error if the model has fewer. Tables that
  // are too short are replaced, not changed.
  const std::vector<RopeTables>& up_to(int64_t positions);
  // Whether a mixer's tokens may have three positions.
  bool takes_three_positions() const;

 private:
  struct Key {
    RopeConfig config;
    int64_t width = 0;  // of the beginning of a head that is rotated
    bool operator==(const Key&) const = default;
  };
  int64_t max_positions_;
  Device device_;
  std::vector<Key> keys_;
  std::vector<RopeTables> tables_;
  int64_t length_ = 0;
};

// The routers of a model, in the order of its layers: each has a place in a pass's RouterTrace.
class RouterSet {
 public:
  explicit RouterSet(const RouterOptions& options = {}) : options_(options) {}
  const RouterOptions& options() const { return options_; }
  size_t add() { return count_++; }
  size_t count() const { return count_; }

 private:
  RouterOptions options_;
  size_t count_ = 0;
};

// Finds what modules hold. A name that was not declared, or an op that was not named for it, is a defect,
// found while the model is built.
struct Binding {
  const ParameterStore& parameters;
  const ops::BoundOps& ops;
  RopeTableSet& rope;
  RouterSet& routers;
  std::string scope = {};
  quantizers::Quantizers* quantizers = nullptr;  // null: the model has none
  ModelRanks ranks = {};                         // that compute the model together

  BoundWeight weight(const std::string& name) const;  // with its quantizer
  // Of several tensor ranks that give parts of a sum, the first adds the bias: zeros in its place on the
  // others, undefined where it is added.
  Tensor added_elsewhere(const BoundWeight& bias) const;
  // What rounds some of what passes, by its name behind the scope ("attention.k_bmm_quantizer"); null:
  // nothing.
  std::shared_ptr<const quantizers::BoundQuantizer> activation_quantizer(const std::string& name) const {
    return quantizer(scope + name);
  }
  // What a module's input is rounded by, or watched by while factors of its columns are calibrated; null:
  // nothing.
  std::shared_ptr<const quantizers::BoundQuantizer> input_quantizer(const std::string& module) const;
  template <class Op>
  ops::Bound<Op> kernel(const std::string& module) const {
    return ops.at<Op>(scope + module);
  }

 private:
  std::shared_ptr<const quantizers::BoundQuantizer> quantizer(const std::string& name) const;
};

}  // namespace temper::layers
