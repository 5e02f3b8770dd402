#include "autograd/tape.h"

#include <algorithm>

#include "autograd/later_gradients.h"
#include "base/error.h"
#include "base/tracing/trace.h"
#include "tensor/host_inputs.h"

namespace temper {
namespace {

bool any_requires_grad(const std::vector<const Var*>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const Var* input) { return input != nullptr && input->requires_grad(); });
}

// The closure as a span of its own, named after the one that it is recorded in.
Tape::BackwardMany traced(Tape::BackwardMany backward) {
  trace::Source source = trace::source();
  if (source.name.empty()) return backward;
  source.name += " backward";
  return [source = std::move(source), backward = std::move(backward)](const std::vector<Tensor>& grads) {
    const trace::Span span(source.name, [&] { return trace::OpWork{source.backward, {}}; });
    backward(grads);
  };
}

}  // namespace

std::vector<Var> Tape::push(std::vector<Tensor> outputs, BackwardMany backward) {
  if (trace::on()) backward = traced(std::move(backward));
  Node node{{}, std::move(backward)};
  std::vector<Var> vars;
  for (Tensor& output : outputs) {
    node.outputs.push_back(std::make_shared<GradSlot>());
    vars.push_back({std::move(output), node.outputs.back()});
  }
  nodes_.push_back(std::move(node));
  return vars;
}

std::vector<Var> Tape::record(std::vector<Tensor> outputs, const std::vector<const Var*>& inputs,
                              BackwardMany backward) {
  if (recording() && any_requires_grad(inputs)) return push(std::move(outputs), std::move(backward));
  std::vector<Var> vars;
  for (Tensor& output : outputs) vars.push_back(constant(std::move(output)));
  return vars;
}

Var Tape::record(Tensor output, const std::vector<const Var*>& inputs, Backward backward) {
  if (!recording() || !any_requires_grad(inputs)) return constant(std::move(output));
  return push({std::move(output)},
              [backward = std::move(backward)](const std::vector<Tensor>& grads) { backward(grads[0]); })[0];
}

Var Tape::record_in_place(Tensor output, const Var& input, Backward edit) {
  if (!recording() || !input.requires_grad()) return constant(std::move(output));
  invariant(output.shape() == input.shape(), "an output whose gradient is the input's has its shape");
  Var var{std::move(output), input.slot};
  if (edit == nullptr) return var;
  BackwardMany backward = [edit = std::move(edit)](const std::vector<Tensor>& grads) { edit(grads[0]); };
  if (trace::on()) backward = traced(std::move(backward));
  nodes_.push_back({{input.slot}, std::move(backward), true});
  return var;
}

Var Tape::checkpoint(const Var& input, std::function<Var(Tape&, const Var&)> body) {
  return checkpoint_many(input, [body = std::move(body)](Tape& tape, const Var& start) {
    return std::vector{body(tape, start)};
  })[0];
}

std::vector<Var> Tape::checkpoint_many(const Var& input,
                                       std::function<std::vector<Var>(Tape&, const Var&)> body) {
  if (!recording()) return body(*this, input);
  Tape silent(false);
  std::vector<Tensor> outputs;
  for (Var& output : body(silent, silent.constant(input.value))) outputs.push_back(std::move(output.value));
  // Recorded whether or not the input needs a gradient: the body's parameters may.
  return push(std::move(outputs), [input, body = std::move(body)](const std::vector<Tensor>& grads) {
    Tape again;
    const Var start = input.requires_grad() ? again.variable(input.value) : again.constant(input.value);
    const std::vector<Var> ends = body(again, start);
    for (size_t i = 0; i < ends.size(); ++i)
      if (ends[i].requires_grad() && grads[i].defined()) ends[i].slot->add(grads[i]);
    again.run_backward();
    if (start.requires_grad() && start.slot->filled()) input.slot->add(start.slot->take());
  });
}

void Tape::backward(const Var& output, Tensor seed, const std::function<void()>& after_each) {
  if (!output.requires_grad()) fail("backward from a value that depends on no trained parameter");
  if (!seed.defined()) {
    if (output.value.numel() != 1) fail("backward from {} needs a seed gradient", to_string(output.shape()));
    seed = Tensor::empty(output.shape(), output.dtype());
    visit_float(output.dtype(), [&]<class T>() { *seed.data<T>() = T(1.0f); });
    seed = from_host(seed, output.value.device());
    one_ = seed.raw();
  }
  output.slot->add(seed);
  seed = Tensor();
  run_backward(after_each);
  one_ = nullptr;
}

void Tape::run_backward(const std::function<void()>& after_each) {
  while (!nodes_.empty()) {
    run_last();
    if (after_each) after_each();
  }
}

void Tape::run_last() {
  Node node = std::move(nodes_.back());
  nodes_.pop_back();
  const auto run = [](const Node& last) {
    std::vector<Tensor> grads;
    bool arrived = false;
    for (const auto& slot : last.outputs) {
      if (!slot->filled())
        grads.emplace_back();
      else
        grads.push_back(last.in_place ? slot->grad() : slot->take());
      arrived = arrived || grads.back().defined();
    }
    if (arrived) last.backward(grads);
  };
  // What it edits may be left for later.
  if (LaterGradients* const later = LaterGradients::current(); later != nullptr && node.in_place)
    later->leave([run, node = std::move(node)] { run(node); });
  else
    run(node);
}

}  // namespace temper
