#include "recipes/loop/planned_pipeline.h"

#include <algorithm>

#include "parallel/model_parts.h"
#include "parallel/pipeline/pipeline_plan.h"
#include "training/objectives/gather_rows.h"
#include "training/passes/micro_batch.h"

namespace temper::recipes {
namespace {

constexpr size_t kWidth = 110;  // characters of a line

int most_micro_batches(const Mesh& mesh, const std::vector<std::vector<data::PackedRow>>& rows,
                       int64_t max_tokens) {
  const int replicas = mesh.row_ranks();
  size_t most = 1;
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<data::PackedRow> own;  // those of several adapters pass together
    for (const std::vector<data::PackedRow>& of_learner : rows) {
      const std::vector<data::PackedRow> some = training::rows_of_rank(of_learner, replica, replicas);
      own.insert(own.end(), some.begin(), some.end());
    }
    most = std::max(most, training::cut_micro_batches(own, max_tokens).size());
  }
  return static_cast<int>(most);
}

}  // namespace

std::string describe_schedule(const layers::DecoderConfig& model, const RunConfig& config,
                              const PlannedDivision& planned, Device device,
                              const std::vector<std::vector<data::PackedRow>>& rows) {
  const auto stages = static_cast<int>(planned.keys.pipeline),
             chunks = static_cast<int>(planned.keys.pipeline_chunks);
  const ComputeConfig& compute = config.train.compute;
  const parallel::PipelineCosts costs =
      parallel::pipeline_costs(model, stages, chunks,
                               {.frozen = !config.adapters.empty(),
                                .again = compute.activation_checkpointing == training::Checkpointing::kFull},
                               device);
  const auto [schedule, timeline] = parallel::plan_pipeline(
      planned.keys.schedule(),
      {stages, chunks, most_micro_batches(planned.mesh, rows, compute.micro_batch_tokens)}, costs,
      parallel::waiting_of(is_apart(device)));
  return parallel::draw(schedule, timeline, kWidth);
}

}  // namespace temper::recipes
