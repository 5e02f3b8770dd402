#include "training/step_graphs.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/tracing/trace.h"

namespace temper::training {
namespace {

// Graphs kept at once; a step that fits none of them takes the place of the one not used for longest.
constexpr size_t kMostVariants = 16;

// What a graph needs beyond a plain step is memory that stays its own, and work that can be captured: only
// for want of these is a step run again, and only where it has changed no weights. Any other error is shown.
bool may_run_again(const Error& error, const StepData& data, bool as_graph) {
  if (dynamic_cast<const CannotCapture*>(&error) != nullptr) return true;
  // A graph whose launch failed, or that could not be captured, has run nothing.
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr && (as_graph || !data.updates);
}

// A step of more arithmetic keeps any GPU that Temper supports busy for longer than it takes to ask for it
// kernel by kernel, and its memory is better left to the pool, which serves evaluation and other shapes, too.
constexpr double kSmallStep = 5e12;

bool same_shape(const StepData& a, const StepData& b) {
  return std::equal(a.batches.begin(), a.batches.end(), b.batches.begin(), b.batches.end(),
                    [](const MicroBatch& x, const MicroBatch& y) { return training::same_shape(x, y); });
}

void assign(StepData& to, const StepData& from) {
  for (size_t i = 0; i < to.batches.size(); ++i) training::assign(to.batches[i], from.batches[i]);
  to.scale.set(from.scale);
  to.inverse_tokens.set(from.inverse_tokens);
}

}  // namespace

std::string describe(const GraphCounts& counts) {
  const std::string reason = counts.why_not.empty() ? "" : "; " + counts.why_not;
  if (counts.replays > 0)
    return fmt::format("CUDA graphs: {} of {} steps were launches of {} graphs{}", counts.replays,
                       counts.steps, counts.graphs, reason);
  if (!reason.empty()) return "CUDA graphs: none" + reason;
  return "CUDA graphs: none; steps are large, or none came again with its shape";
}

struct StepGraphs::Variant {
  Variant(Device device, std::shared_ptr<Arena> arena, const Work& run, StepData first)
      : data(std::move(first)), work(device, std::move(arena), [this, &run] { run(data); }) {}
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  StepData data;
  RepeatedWork work;
};

StepGraphs::StepGraphs(Device device, CudaGraph choice, std::string why_not, Work work)
    : device_(device), choice_(choice), work_(std::move(work)) {
  counts_.why_not = std::move(why_not);
  if (choice == CudaGraph::kOff) counts_.why_not = "train.cuda_graph is off";
  if (choice == CudaGraph::kOn && !counts_.why_not.empty())
    fail("[train.cuda_graph] is on, but {}; use auto or off", counts_.why_not);
}

StepGraphs::~StepGraphs() = default;

// A traced step waits for each of its ops.
bool StepGraphs::wanted(double flops) const {
  if (!counts_.why_not.empty() || trace::on()) return false;
  return choice_ == CudaGraph::kOn || flops < kSmallStep;
}

const StepData& StepGraphs::run_plain(StepData data) {
  plain_ = std::move(data);
  HostInputs inputs(device_);
  const HostInputs::Scope scope(inputs, false);
  work_(plain_);
  return plain_;
}

StepGraphs::Variant& StepGraphs::variant_for(StepData data) {
  for (auto it = variants_.begin(); it != variants_.end(); ++it) {
    if (!same_shape((*it)->data, data)) continue;
    assign((*it)->data, data);
    if (!(*it)->work.prepared()) continue;
    variants_.splice(variants_.begin(), variants_, it);
    return *variants_.front();
  }
  if (variants_.size() == kMostVariants) variants_.pop_back();
  if (!arena_) arena_ = std::make_shared<Arena>(device_);
  variants_.push_front(std::make_unique<Variant>(device_, arena_, work_, std::move(data)));
  return *variants_.front();
}

void StepGraphs::give_up(const std::string& reason) {
  variants_.clear();
  arena_ = nullptr;
  counts_.why_not = reason;
  log_warning("steps are not captured in CUDA graphs any more: " + reason);
}

const StepData& StepGraphs::run(StepData data, double flops) {
  ++counts_.steps;
  if (!wanted(flops)) return run_plain(std::move(data));
  Variant& variant = variant_for(std::move(data));
  const bool captured = variant.work.captured(), captures = !captured && variant.work.prepared();
  try {
    variant.work.run();
  } catch (const Error& error) {
    if (choice_ == CudaGraph::kOn || !may_run_again(error, variant.data, captured || captures)) throw;
    StepData again = std::move(variant.data);
    again.outputs.clear();
    again.grad_norm = {};
    again.updates = false;
    give_up(error.what());
    return run_plain(std::move(again));
  }
  counts_.graphs += captures && variant.work.captured() ? 1 : 0;
  counts_.replays += variant.work.captured() ? 1 : 0;
  return variant.data;
}

}  // namespace temper::training
