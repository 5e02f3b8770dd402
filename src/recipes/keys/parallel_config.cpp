#include "recipes/keys/parallel_config.h"

namespace temper::recipes {

ParallelConfig::Degrees ParallelConfig::usual_degrees() {
  Degrees degrees;
  degrees.fill("1");
  degrees.front() = "auto";
  return degrees;
}

parallel::ScheduleKind ParallelConfig::schedule() const {
  using parallel::ScheduleKind;
  switch (pipeline_schedule) {
    case PipelineSchedule::k1F1B:
      return ScheduleKind::k1F1B;
    case PipelineSchedule::kInterleaved:
      return ScheduleKind::kInterleaved;
    case PipelineSchedule::kZbH1:
      return ScheduleKind::kZbH1;
    case PipelineSchedule::kAuto:
      break;
  }
  return parallel::usual_kind(pipeline_chunks);
}

namespace {

void describe_pipeline(config::Schema& s, ParallelConfig& c) {
  s.field("pipeline", c.pipeline,
          "Pipeline parallelism: the number of stages that the layers are divided between, one behind the "
          "other. Each stage has an equal part of the ranks, which the other degrees divide; micro-batches "
          "(train.micro_batch_tokens) pass the stages one after the other.")
      .at_least(1);
  s.field(
       "pipeline_chunks", c.pipeline_chunks,
       "The number of parts of the layers on each pipeline stage. More than 1 need the schedule interleaved: "
       "stages wait less for each other, but send more tensors and keep more activations.")
      .at_least(1);
  s.choice(
      "pipeline_schedule", c.pipeline_schedule,
      {{"auto", PipelineSchedule::kAuto},
       {"1f1b", PipelineSchedule::k1F1B},
       {"interleaved", PipelineSchedule::kInterleaved},
       {"zb_h1", PipelineSchedule::kZbH1}},
      "The order in which pipeline stages compute: 1f1b, a backward pass as soon as it can be computed; "
      "interleaved, the same with several parts of the layers on each stage (pipeline_chunks); zb_h1, as "
      "1f1b, but the gradients of weight matrices are computed later, where a stage would wait. auto is "
      "1f1b, or "
      "interleaved where pipeline_chunks is above 1.");
}

}  // namespace

void describe(config::Schema& s, ParallelConfig& c) {
  const auto degree = [&](const char* axis, const char* help) { s.field(axis, c.degree(axis), help); };
  degree(
      "replicate",
      "Data parallelism: the number of copies of the model and its optimizer state; auto is what the other "
      "degrees leave of the ranks.");
  degree("shard",
         "Sharded data parallelism (ZeRO): the number of ranks that share one optimizer state, each with its "
         "part of master weights and moments (ranks that divide experts share that of other weights, too); "
         "auto is all ranks that the other degrees leave.");
  s.field("shard_level", c.shard_level,
          "The ZeRO stage of parallel.shard: 1 divides the optimizer's state, 2 gradients, too, and 3 the "
          "layers' matrices, too, which are gathered for a layer while it computes.")
      .at_least(1);
  degree("context",
         "Context parallelism: the number of ranks that divide the tokens of each row between them, for rows "
         "that are too long for one; auto is all ranks that the other degrees leave.");
  s.choice(
      "context_method", c.context_method,
      {{"auto", ContextMethod::kAuto},
       {"ulysses", ContextMethod::kHeads},
       {"ring", ContextMethod::kKeys},
       {"usp", ContextMethod::kBoth}},
      "How context ranks compute attention: ulysses gives each of them all tokens of some heads, ring the "
      "keys and values of all tokens. With usp ranks exchange heads within groups, and keys and values "
      "between the groups. auto takes the largest groups that the heads allow: one of all ranks, which is "
      "ulysses, several, or groups of one rank, which is ring. Delta layers of hybrids exchange heads with "
      "ulysses; otherwise ranks pass states on.");
  s.field("context_heads", c.context_heads,
          "The number of neighboring context ranks that exchange heads, with auto or usp. It divides "
          "parallel.context and the heads of every layer; by default it is the greatest number that does.")
      .at_least(1);
  degree(
      "tensor",
      "The number of ranks that divide every layer: heads, widths and the vocabulary; auto is all ranks that "
      "the other degrees leave.");
  degree("expert",
         "The number of ranks that divide the experts of a mixture between them; auto is all ranks that the "
         "other degrees leave.");
  describe_pipeline(s, c);
  s.field(
      "sequence", c.sequence,
      "Whether tensor ranks divide the tokens between layers, too, which takes less memory; by default they "
      "do. Mixtures need it.");
  s.field(
      "check", c.check,
      "Whether ranks on GPUs compare what they do before each collective: differences are reported at once, "
      "and ranks that do not come are named. Costs time; ranks on CPUs always do it.");
}

}  // namespace temper::recipes
