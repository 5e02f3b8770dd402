#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/fake_quantize/fake_quantize.h"
#include "ops/rounded_experts/rounded_experts.h"
#include "quantizers/quantizer_parts.h"

// The quantizers of a model while it computes: what their amax is, and what passes do with them.
namespace temper::quantizers {

enum class QuantizerMode {
  kFake,     // weights and inputs are rounded to their formats
  kObserve,  // nothing is rounded, and what passes is shown to whoever calibrates
  kOff,      // nothing is rounded
};

// Factors of columns (PlannedQuantizer::pre_quant_scale), which a weight and its module's input share.
// Quantizers compute with them and divide again: what modules read means what it means without factors.
struct ColumnScales {
  // Of all columns and experts, on the CPU; ones until they are calibrated.
  Tensor whole = {};  // [1, columns] or [experts, 1, columns] float32
  // What this rank has of them, and one divided by it, on the model's device.
  Tensor pre_quant = {};             // [1, columns] or [experts, 1, columns] float32
  Tensor inverse = {};               // the same shape
  std::vector<int64_t> places = {};  // of each own factor among all

  bool exist() const { return whole.defined(); }
  void take_own() const;  // pre_quant and inverse, of whole
};

// Where ranks divide a model, `planned` and `amax` are of what this one has of it.
struct Quantizer {
  PlannedQuantizer planned;
  Tensor amax = {};  // [row groups, column groups] float32, or with experts in front (planned.amax); zeros
                     // until it is calibrated; undefined where none is kept
  // Of integers with zero points the lower ends, of amax's shape and nothing above 0; amax are the upper
  // ones. Undefined otherwise.
  Tensor low = {};
  bool observed = false;  // of inputs: values have passed while it was calibrated
  bool is_here = true;    // false: another stage of a pipeline has the weight; amax is of all of it
  // Of a weight that ranks divide: the amax of all of it, on the CPU, and which of these each own one is.
  Tensor whole = {};      // of the shape that the plan has for all of it
  Tensor whole_low = {};  // the same shape
  std::vector<int64_t> elements = {};
  // Of a weight that is rounded again: the largest amax of the whole matrix, or of each expert, on the
  // model's device; found by set_ready().
  Tensor second = {};         // [1, 1] or [experts, 1, 1] float32 (PlannedQuantizer::second_amax)
  ColumnScales columns = {};  // of a weight; inputs are multiplied by those of their module's
};

// By which a weight is rounded once more; undefined where it is not.
ops::SecondRounding second_rounding(const Quantizer& weight);

// An amax by the name that states have for it: "layers.0.attention.qkv.weight_quantizer._amax", and of
// experts that have quantizers of their own "layers.0.mlp.experts.down.weight_quantizer.3._amax", by the
// number of the expert in the model; "…._low" and "…._high" of integers with zero points; or factors of
// columns: "layers.0.attention.qkv.input_quantizer._pre_quant_scale",
// "layers.0.mlp.experts.down.input_quantizer.3._pre_quant_scale". No name or shape depends on how a run is
// laid out.
struct NamedScales {
  std::string name;
  Tensor values;  // of amax [row groups, column groups] float32, or [1, row groups, column groups]; of
                  // factors [columns]; a view
  bool of_input = false;  // passes round what goes through them by it; otherwise it is of a weight alone
};

class Quantizers {
 public:
  // `layout`: which part of each weight of the table this rank has.
  Quantizers(QuantizerPlan plan, Device device, const WeightTable& table, const Layout& layout);
  Quantizers(const Quantizers&) = delete;  // modules know where it is
  Quantizers& operator=(const Quantizers&) = delete;

  const QuantizerPlan& plan() const { return plan_; }
  bool empty() const { return all_.empty(); }
  bool are_on_stages() const { return on_stages_; }  // of a pipeline, each of which has some of them
  bool scale_columns() const;                        // whether there are factors of any columns
  std::vector<Quantizer>& all() { return all_; }
  const std::vector<Quantizer>& all() const { return all_; }
  Quantizer* find(std::string_view name);  // null: there is none
  // Of the module whose input `each` rounds, or itself where it is a weight's; null: there is none.
  const Quantizer* weight_of_module(const Quantizer& each) const;
  std::vector<NamedScales> state() const;  // all that are kept, in the plan's order, whole on every rank
  void take_own();                         // of all that is whole what this rank computes with

  // Of passes, not of the quantizers: whoever computes may say.
  QuantizerMode mode() const { return mode_; }
  void set_mode(QuantizerMode mode) const { mode_ = mode; }
  // What becomes of inputs that pass in kObserve, [tokens, columns] on the model's device, of those that
  // share the amax with this place, or are of the expert with it where columns have factors; none: their amax
  // grows. Of a module whose weight alone is quantized, with factors of columns, it is given the weight's.
  using Observer = std::function<void(Quantizer&, const Tensor& x, int64_t place)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }
  const Observer& observer() const { return observer_; }
  // Whether the weights of a frozen model have been replaced by what their quantizers make of them, so that
  // passes read them as they are.
  bool are_weights_rounded() const { return weights_rounded_; }
  void set_weights_rounded() { weights_rounded_ = true; }
  // Whether the rank's own tokens count in kObserve: not in passes that only keep step with other ranks.
  bool tokens_count() const { return tokens_count_; }
  void set_tokens_count(bool count) const { tokens_count_ = count; }
  // Passes that round are a defect before there is every amax.
  bool ready() const { return ready_; }
  void set_ready();

 private:
  QuantizerPlan plan_;
  std::vector<Quantizer> all_;
  Observer observer_;
  mutable QuantizerMode mode_ = QuantizerMode::kFake;
  mutable bool tokens_count_ = true;
  bool ready_ = false, weights_rounded_ = false;
  bool on_stages_ = false;
};

// Passes of one scope compute as if the model had no quantizers.
class QuantizersOff {
 public:
  explicit QuantizersOff(const Quantizers& quantizers) : quantizers_(quantizers), before_(quantizers.mode()) {
    quantizers_.set_mode(QuantizerMode::kOff);
  }
  ~QuantizersOff() { quantizers_.set_mode(before_); }
  QuantizersOff(const QuantizersOff&) = delete;
  QuantizersOff& operator=(const QuantizersOff&) = delete;

 private:
  const Quantizers& quantizers_;
  QuantizerMode before_;
};

// A quantizer as a module holds it, with its kernel.
class BoundQuantizer {
 public:
  BoundQuantizer(Quantizers& all, Quantizer& own, ops::Bound<ops::FakeQuantize> kernel);
  // Of a module's input that is not quantized: passes leave it as it is, and observers of the weight's see
  // it.
  BoundQuantizer(Quantizers& all, Quantizer& weight) : all_(&all), own_(&weight), only_watches_(true) {}

  // x [rows, columns] as its format gives it back; of experts' weights all rows in one call. The gradient
  // passes, or is clipped where the amax is not found in x itself. That of a weight, which passes read
  // through its quantizer alone, is formed in the parameter's own.
  Var operator()(Tape& tape, const Var& x) const;
  // The same of rows of experts, ids [rows, 1] int32, each with its expert's amax. Rows of weight 0 (weights
  // of as many elements, float32) do not count in kObserve.
  Var operator()(Tape& tape, const Var& x, const Tensor& ids, const Tensor& weights) const;
  // For kernels that round rows of experts themselves (PlannedQuantizer::rounds_rows_alone).
  ops::RowRounding row_rounding(Device device) const;
  const PlannedQuantizer& planned() const { return own_->planned; }
  const Quantizers& all() const { return *all_; }
  // False where the quantizer only watches, and observation is off.
  bool needs_rows() const { return !only_watches_ || all_->mode() == QuantizerMode::kObserve; }

 private:
  // The ends of ranges; low is undefined where formats have no zero points.
  struct Ends {
    Tensor amax = {}, low = {};
  };
  Var round(Tape& tape, const Var& x, const Ends& ends, const ops::ColumnFactors& factors) const;
  // What is kept, or that of x times the factors of its columns.
  Ends ends_for(const Tensor& x, const Tensor& by) const;
  Ends ends_of_rows(const Tensor& ids) const;  // what is kept, of each row's expert
  bool rounds() const;                         // in this mode
  void must_be_ready(Device device) const;
  bool observes(const Tensor& x) const;
  void observe(const Tensor& x) const;
  void observe(const Tensor& x, const Tensor& ids, const Tensor& weights) const;
  ops::ColumnFactors factors() const;

  Quantizers* all_;
  Quantizer* own_;
  const ColumnScales* columns_ = nullptr;  // null: none
  std::optional<ops::Bound<ops::FakeQuantize>> kernel_;
  bool only_watches_ = false;
};

}  // namespace temper::quantizers
