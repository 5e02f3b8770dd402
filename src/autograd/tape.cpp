#include "autograd/tape.h"

#include <algorithm>

#include "base/error.h"
#include "base/trace.h"
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

Var Tape::checkpoint(const Var& input, std::function<Var(Tape&, const Var&)> body) {
  if (!recording()) return body(*this, input);
  Tape silent(false);
  const Tensor output = body(silent, silent.constant(input.value)).value;
  // Recorded whether or not the input needs a gradient: the body's parameters may.
  return push({output}, [input, body = std::move(body)](const std::vector<Tensor>& grads) {
    Tape again;
    const Var start = input.requires_grad() ? again.variable(input.value) : again.constant(input.value);
    const Var end = body(again, start);
    if (!end.requires_grad()) return;
    again.backward(end, grads[0]);
    if (start.requires_grad() && start.slot->filled()) input.slot->add(start.slot->take());
  })[0];
}

void Tape::backward(const Var& output, Tensor seed) {
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
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    std::vector<Tensor> grads;
    bool arrived = false;
    for (const auto& slot : node.outputs) {
      grads.push_back(slot->filled() ? slot->take() : Tensor());
      arrived = arrived || grads.back().defined();
    }
    if (arrived) node.backward(grads);
  }
  one_ = nullptr;
}

}  // namespace temper
