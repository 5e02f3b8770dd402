#include "parallel/pipeline/pipeline_plan.h"

#include "parallel/pipeline/schedule_check.h"

namespace temper::parallel {
namespace {

PartCosts mean_of(const std::vector<PartCosts>& parts) {
  PartCosts mean{0, 0, 0};
  const auto count = static_cast<double>(parts.size());
  for (const PartCosts& part : parts) {
    mean.forward += part.forward / count;
    mean.backward_input += part.backward_input / count;
    mean.backward_weight += part.backward_weight / count;
  }
  return mean;
}

}  // namespace

PipelinePlan plan_pipeline(ScheduleKind kind, const PipelineShape& shape, const PipelineCosts& costs,
                           Waiting waiting) {
  PipelinePlan plan{make_schedule(kind, shape, mean_of(costs.parts)), {}};
  check_schedule(plan.schedule);
  plan.timeline = simulate(plan.schedule, costs, waiting);
  return plan;
}

}  // namespace temper::parallel
