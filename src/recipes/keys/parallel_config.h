#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/schema.h"
#include "parallel/pipeline/schedule.h"
#include "weights/mesh.h"

namespace temper::recipes {

// parallel::ScheduleKind, or the usual one of the chunks.
enum class PipelineSchedule { kAuto, k1F1B, kInterleaved, kZbH1 };

// How several ranks divide the work; each is a number, or auto: what the others leave of the ranks.
struct ParallelConfig {
  using Degrees = std::array<std::string, kMeshAxes.size()>;  // as kMeshAxes
  static Degrees usual_degrees();                             // auto for the first axis, otherwise 1

  Degrees degrees = usual_degrees();
  std::string& degree(std::string_view axis) { return degrees[index_of_axis(axis)]; }
  int64_t pipeline = 1;         // stages, each of as many ranks as the degrees make
  int64_t pipeline_chunks = 1;  // parts of the layers on each stage
  PipelineSchedule pipeline_schedule = PipelineSchedule::kAuto;
  parallel::ScheduleKind schedule() const;
  ContextMethod context_method = ContextMethod::kAuto;
  std::optional<int64_t> context_heads;  // absent: what the method and the model say
  int64_t shard_level = 1;
  std::optional<bool> sequence;  // absent: with more than one tensor rank
  bool check = false;
};
void describe(config::Schema& s, ParallelConfig& c);

}  // namespace temper::recipes
