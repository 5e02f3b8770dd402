#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "autograd/tape.h"
#include "layers/parameters/layer_gradients.h"
#include "layers/parameters/nf4_weight.h"
#include "primitives/frozen.h"
#include "primitives/quantized.h"
#include "weights/layout.h"

namespace temper::quantizers {
class BoundQuantizer;
}

namespace temper::layers {

// What training keeps besides the parameters, and how precisely.
struct StateFormat {
  bool master_weights = true;     // float32, in addition to parameters of lower precision; without them
                                  // updates are rounded stochastically
  DType gradients = DType::kF32;  // float32 or bfloat16
  DType moments = DType::kF32;    // float32 or bfloat16
};

// A parameter as a module holds it, found by its name when the module was built.
class BoundWeight {
 public:
  BoundWeight() = default;  // none: the module does not have it
  // `nf4`: null, or what the parameter is kept in instead of its value.
  BoundWeight(size_t id, const Parameter& parameter, DType dtype, const primitives::Nf4Matrix* nf4 = nullptr)
      : id_(id), parameter_(&parameter), dtype_(dtype), nf4_(nf4) {}
  // Passes read what the quantizer makes of the parameter.
  void set_quantizer(std::shared_ptr<const quantizers::BoundQuantizer> quantizer) {
    quantizer_ = std::move(quantizer);
  }

  size_t id() const { return id_; }  // its place among the table's specs, then among its tied weights
  bool exists() const { return parameter_ != nullptr; }
  const Parameter& parameter() const { return *parameter_; }
  // What a pass reads of it, in the store's dtype, quantized where a quantizer targets it; of none nothing,
  // Var{}.
  primitives::Matrix matrix(Tape& tape) const;
  Var leaf(Tape& tape) const;  // of a parameter that is in no frozen format
  Tensor value() const;        // the same outside a pass, without a quantizer

 private:
  size_t id_ = 0;
  const Parameter* parameter_ = nullptr;
  DType dtype_ = DType::kF32;
  const primitives::Nf4Matrix* nf4_ = nullptr;
  std::shared_ptr<const quantizers::BoundQuantizer> quantizer_;  // null: none
};

// The parameters of one model, in the order of its weight table: all of them, or of each the part that a rank
// holds.
class ParameterStore {
 public:
  // Memory for every value (tag weights), uninitialized. With `frozen` the weights that quantizers may target
  // are kept in 8 or 4 bits, and nothing can be trained. Those in 4 bits have the magnitudes of the whole
  // matrix on every rank, and its codes. Of a mesh, and of stages of it, a rank holds what its layout says:
  // of some parameters perhaps nothing. What a rank holds of a model cannot compute by itself.
  ParameterStore(WeightTable table, DType dtype, Device device,
                 std::optional<primitives::FrozenFormat> frozen = {}, const Mesh& mesh = {}, int rank = 0,
                 Stages stages = {});

  const WeightTable& table() const { return table_; }
  // What WeightTable knows of the files that were read.
  void set_stacked(bool stacked) { table_.set_stacked(stacked); }
  void set_stacked_transposed(bool transposed) { table_.set_stacked_transposed(transposed); }
  void set_text_names(const std::optional<TextNames>& names) { table_.set_text_names(names); }
  void set_read_dtypes(std::unordered_map<std::string, DType> dtypes) {
    table_.set_read_dtypes(std::move(dtypes));
  }
  const Layout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  size_t size() const { return parameters_.size(); }
  // What the store holds of each, as passes read it, by name.
  std::vector<PlacedTensor> placed() const;

  // Of a parameter whose value comes and goes the part that the store keeps; of others the value.
  const Tensor& own(size_t index) const {
    return own_[index].defined() ? own_[index] : parameters_[index].value;
  }
  // Memory for the value, uninitialized, until it is dropped.
  Tensor make_value(size_t index);
  void drop_value(size_t index);
  // Of gradients that are summed layer by layer the parts of the sums that are kept until reset_gradients().
  LayerGradients& layer_gradients() { return layer_gradients_; }
  Parameter& operator[](size_t index) { return parameters_[index]; }
  const Parameter& operator[](size_t index) const { return parameters_[index]; }
  const WeightSpec& spec(size_t index) const { return table_.specs()[index]; }
  // Also by the name of a weight that is tied to it; throws when the table has no such name.
  const Parameter& at(std::string_view name) const;
  int64_t num_elements() const;  // that the store holds

  // The place of a parameter, also by the name of a tied weight. An unknown name is a defect.
  size_t index_of(std::string_view name) const;
  // A module's handle, which the store must outlive; also by the name of a tied weight. An unknown name is a
  // defect.
  BoundWeight bound(std::string_view name) const;
  Tensor value(std::string_view name) const { return bound(name).value(); }
  // Some rows of the whole parameter, from `first` on, of which the store takes what it holds; of any
  // floating-point dtype, on the CPU or the store's device. Matrices in 4 bits are encoded as soon as all
  // rows of one of the parameter's sources are there, which must come from the first to the last.
  void set_rows(std::string_view name, int64_t first, const Tensor& rows);
  // One of the sources of a parameter, from its row `first` on, with the codes that it has; its magnitudes
  // stay or, where the store keeps others, become what quant::with_magnitudes() makes of them. False, and
  // nothing is set, where the parameter is not kept in 4 bits.
  bool set_nf4(std::string_view name, int64_t first, const quant::Nf4& matrix);

  // Matrices normal(0, deviation), keyed by (seed, parameter, element); norms one (or where their table says,
  // zero), biases and buffers zero.
  void initialize(uint64_t seed, double deviation);
  // Differs from every earlier version of any store: what was computed from the values (a KV cache) is of use
  // only as long as their version is the same. Whoever writes to values in another way than through the
  // functions of this class calls changed().
  uint64_t version() const { return version_; }
  void changed();

  // From now on every parameter that the store holds and that is no buffer has a gradient (an Error where
  // some are kept in 8 bits) that accumulates until reset_gradients(). Its memory (tag gradients) comes when
  // backward first reaches it, or for all of them with allocate_gradients(), and stays until
  // release_gradients().
  void enable_gradients(DType dtype);
  void allocate_gradients();
  void reset_gradients();
  void release_gradients();

 private:
  void set_own(size_t index, const Slice& slice, const Tensor& rows);

  WeightTable table_;
  Layout layout_;
  DType dtype_;
  Device device_;
  std::vector<Parameter> parameters_;
  std::vector<Tensor> own_;  // undefined where the value is always there
  // In 4 bits: the value of the parameter is then its codes, and the scales are those of the magnitudes.
  std::vector<std::unique_ptr<Nf4Weight>> four_bits_;  // null: kept otherwise
  LayerGradients layer_gradients_;
  uint64_t version_ = 0;
};

}  // namespace temper::layers
