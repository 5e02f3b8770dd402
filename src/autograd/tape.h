#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/grad_slot.h"

namespace temper {

// Makes a value again, with the same bits as the first time.
class Remake {
 public:
  using Use = std::function<void(const Tensor& value)>;

  // `comes`: the backward pass of the op that made the value has it at hand, and will call hand_over() when
  // the value's gradient has arrived.
  explicit Remake(std::function<Tensor()> make, bool comes = false) : make_(std::move(make)), comes_(comes) {}
  Tensor make() const { return make_(); }

  bool comes() const { return comes_; }
  bool awaited() const { return !waiting_.empty(); }
  void await(Use use) { waiting_.push_back(std::move(use)); }
  void hand_over(const Tensor& value) {
    for (const Use& use : std::exchange(waiting_, {})) use(value);
  }

 private:
  std::function<Tensor()> make_;
  bool comes_;
  std::vector<Use> waiting_;
};

// What a closure keeps of a value for its backward pass: the tensor, or what makes it again.
class Saved {
 public:
  Saved() = default;
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)) {}
  explicit Saved(std::shared_ptr<Remake> remake) : remake_(std::move(remake)) {}
  Tensor get() const { return remake_ ? remake_->make() : tensor_; }

  // Whether the value comes by itself to who has given it its gradient, and can wait.
  bool comes() const { return remake_ != nullptr && remake_->comes(); }
  void await(Remake::Use use) const { remake_->await(std::move(use)); }

 private:
  Tensor tensor_;
  std::shared_ptr<Remake> remake_;
};

// A value that a tape may differentiate with respect to.
struct Var {
  Tensor value;                              // of any shape
  std::shared_ptr<GradSlot> slot;            // null: no gradient flows here
  std::shared_ptr<Remake> remake = nullptr;  // null: whoever needs the value in backward keeps it
  bool requires_grad() const { return slot != nullptr; }
  Saved saved() const { return remake ? Saved(remake) : Saved(value); }
  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
};

// A tensor that may be trained. Its gradient outlives tapes and accumulates over micro-batches.
struct Parameter {
  Tensor value;                    // of any shape
  std::shared_ptr<GradSlot> grad;  // null while frozen
  Tensor scales = {};              // [rows], of a frozen matrix kept in 8 bits (primitives/quantized.h)
  // The value exists only while it is used, in the forward pass and again in the backward pass.
  bool gathered_on_use = false;
};

struct TapeOptions {
  bool recording = true;       // false is for inference: record() then only wraps its outputs
  bool rematerialize = false;  // outputs of cheap ops are recomputed in backward (`remake`), not kept
  bool keep_states =
      false;  // recurrent ops that can keep states for backward do, instead of computing them again
};

// Records closures in the order of execution and runs them backward once. It knows no op: an op hands it
// outputs, inputs and a function from the outputs' gradients to the inputs' slots. What a closure captured is
// freed as soon as it has run.
class Tape {
 public:
  explicit Tape(bool recording = true) : Tape(TapeOptions{.recording = recording}) {}
  explicit Tape(const TapeOptions& options) : options_(options) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool recording() const { return options_.recording; }
  bool rematerializes() const { return options_.recording && options_.rematerialize; }
  bool keeps_states() const { return options_.recording && options_.keep_states; }
  size_t size() const { return nodes_.size(); }

  Var constant(Tensor value) const { return {std::move(value), nullptr}; }
  Var leaf(const Parameter& parameter) const {
    Var leaf{parameter.value, recording() ? parameter.grad : nullptr};
    if (parameter.gathered_on_use)
      leaf.remake = std::make_shared<Remake>([&parameter] { return parameter.value; });
    return leaf;
  }
  Var variable(Tensor value) const { return {std::move(value), std::make_shared<GradSlot>()}; }

  using Backward = std::function<void(const Tensor& grad)>;
  using BackwardMany = std::function<void(const std::vector<Tensor>& grads)>;  // undefined where none arrived

  // One output. `backward` runs only if a gradient arrives at it, and only if an input requires one.
  Var record(Tensor output, const std::vector<const Var*>& inputs, Backward backward);
  std::vector<Var> record(std::vector<Tensor> outputs, const std::vector<const Var*>& inputs,
                          BackwardMany backward);
  // An output whose gradient is the input's except for what `edit` changes in it, so that it is formed in the
  // input's own memory, with the input's shape. `edit` runs when all of it has arrived, may find
  // contributions of earlier tapes that it has edited before, and must change nothing in those. For
  // parameters that nothing else reads. No `edit`: the gradient stays as it is.
  Var record_in_place(Tensor output, const Var& input, Backward edit);

  // Activation checkpointing: runs `body` without recording and keeps only its input; backward runs it again,
  // recording, and differentiates that. `body` may use parameters; it must compute the same thing twice.
  Var checkpoint(const Var& input, std::function<Var(Tape&, const Var&)> body);
  std::vector<Var> checkpoint_many(const Var& input, std::function<std::vector<Var>(Tape&, const Var&)> body);

  // Runs everything backward from `output` with gradient `seed` (ones for a scalar), emptying the tape.
  // `after_each`: called when a closure has run and what it captured is freed; not within checkpoints.
  void backward(const Var& output, Tensor seed = {}, const std::function<void()>& after_each = nullptr);
  // While backward runs: whether this is the one that it started from, known without asking a device.
  bool is_one(const Tensor& grad) const { return grad.raw() == one_ || grad.item() == 1; }

 private:
  struct Node {
    std::vector<std::shared_ptr<GradSlot>> outputs;
    BackwardMany backward;
    bool in_place = false;  // the outputs' gradients stay where they are
  };
  std::vector<Var> push(std::vector<Tensor> outputs, BackwardMany backward);
  void run_backward(
      const std::function<void()>& after_each = nullptr);  // from the gradients that outputs have
  void run_last();

  TapeOptions options_;
  std::vector<Node> nodes_;
  const void* one_ = nullptr;
};

}  // namespace temper
