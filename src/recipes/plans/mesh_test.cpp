#include "recipes/plans/mesh.h"

#include <gtest/gtest.h>

#include "layers/context_division.h"
#include "models/model.h"
#include "recipes/plans/mesh_proposals.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

// Routers see tokens of their own where ranks divide them; a dense model may keep all of them everywhere.
TEST(Mesh, MixturesOnTensorRanksNeedSequenceParallelism) {
  const auto refusal = [](const char* type, const Mesh& mesh) {
    return error_of(
        [&] { check_mesh(mesh, models::configure(tiny_config(type), "config.json"), RunConfig()); });
  };
  EXPECT_EQ(
      refusal("qwen3_moe", {.tensor = 2, .sequence = false}),
      "[parallel.sequence] is false, but the routers of a mixture on several tensor ranks need it; leave it "
      "out");
  EXPECT_EQ(refusal("qwen3_moe", {.tensor = 2}), "");
  EXPECT_EQ(refusal("qwen3", {.context = 2}), "");
  EXPECT_EQ(refusal("qwen3", {.context = 3}), "");  // keys travel
  EXPECT_EQ(refusal("qwen3", {.context = 3, .context_method = ContextMethod::kHeads}),
            "[parallel.context] is 3: 4 query heads cannot be divided equally between 3 ranks; set context "
            "to 1, 2 or 4, or context_method to ring");
  EXPECT_EQ(refusal("qwen3", {.context = 6, .context_method = ContextMethod::kHeads}),
            "[parallel.context] is 6: 4 query heads cannot be divided equally between 6 ranks; set context "
            "to 1, 2 or 4, or context_method to usp or ring");
  EXPECT_EQ(refusal("qwen3", {.context = 6, .context_method = ContextMethod::kBoth}), "");
  EXPECT_EQ(
      refusal("qwen3", {.context = 2, .context_method = ContextMethod::kBoth}),
      "[parallel.context_method] is usp, but no number between 1 and 2 divides both the 2 context ranks "
      "and the heads of every layer; set context to 4, 6 or 8, or context_method to ulysses or ring");
  EXPECT_EQ(refusal("qwen3", {.context = 6, .context_heads = 3}),
            "[parallel.context_heads] is 3: 4 query heads cannot be divided equally between 3 ranks; set it "
            "to 1 or 2");
  EXPECT_EQ(refusal("qwen3_next", {.context = 3, .context_heads = 1}),
            "[parallel.context] is 3: 4 value heads of gated delta layers cannot be divided equally between "
            "3 ranks; set context to 1, 2 or 4");
  EXPECT_EQ(refusal("qwen3_next", {.context = 3}),
            "[parallel.context] is 3: 4 value heads of gated delta layers cannot be divided equally between "
            "3 ranks; set context to 1, 2 or 4");
  EXPECT_EQ(refusal("qwen3", {.tensor = 2, .sequence = false}), "");
}

// As many as the heads and the ranks allow: 4 query heads and 2 key heads of qwen3, 4 of latent attention.
TEST(Mesh, ContextRanksExchangeHeadsInTheLargestGroups) {
  const auto heads = [](const char* type, const Mesh& mesh) {
    return layers::context_heads_of(models::configure(tiny_config(type), "config.json"), mesh);
  };
  constexpr ContextMethod kBoth = ContextMethod::kBoth;
  for (const auto& [context, most] : {std::pair(1, 1), {2, 2}, {3, 1}, {4, 4}, {6, 2}, {8, 4}, {12, 4}})
    EXPECT_EQ(heads("qwen3", {.context = context}), most) << context;
  EXPECT_EQ(heads("qwen3", {.context = 4, .tensor = 2}), 2);  // of two query heads and one key head
  EXPECT_EQ(heads("qwen3", {.context = 4, .context_method = kBoth}), 2);
  EXPECT_EQ(heads("qwen3", {.context = 8, .context_method = kBoth}), 4);
  EXPECT_EQ(heads("qwen3", {.context = 8, .context_method = kBoth, .context_heads = 2}), 2);
  EXPECT_EQ(heads("qwen3", {.context = 4, .context_method = ContextMethod::kKeys}), 1);
  EXPECT_EQ(heads("deepseek_v3", {.context = 8}), 4);
  EXPECT_EQ(heads("qwen3_next", {.context = 4, .context_method = kBoth}), 2);
}

TEST(Mesh, NumbersOfContextRanksThatExchangeHeadsDivideTheContextRanks) {
  const auto error = [](const char* context, int64_t heads, ContextMethod method) {
    RunConfig config;
    config.parallel.degree("context") = context;
    config.parallel.context_heads = heads;
    config.parallel.context_method = method;
    return error_of([&] { mesh_of(config, 8); });
  };
  EXPECT_EQ(error("8", 2, ContextMethod::kAuto), "");
  EXPECT_EQ(error("8", 8, ContextMethod::kBoth), "");
  EXPECT_EQ(
      error("8", 3, ContextMethod::kBoth),
      "[parallel.context_heads] is 3, but parallel.context is 8, which it does not divide; set it to 1, 2, "
      "4 or 8");
  EXPECT_EQ(
      error("8", 2, ContextMethod::kKeys),
      "[parallel.context_heads] is 2, but parallel.context_method is ring, which says it already; leave "
      "one of them out");
  EXPECT_EQ(
      error("1", 2, ContextMethod::kAuto),
      "[parallel.context_heads] is about ranks that divide the tokens of rows, and parallel.context is 1; "
      "leave it out");
  RunConfig config;
  config.parallel.degree("context") = "4";
  config.parallel.context_heads = 2;
  EXPECT_EQ(to_string(mesh_of(config, 8)), "replicate 2, shard 1, context 4, context_heads 2");
}

RunConfig with_degrees_of(const ParallelConfig::Degrees& degrees) {
  RunConfig config;
  config.model.path = "nowhere";  // nothing is known of the model
  config.parallel.degrees = degrees;
  return config;
}

TEST(Mesh, OneAxisTakesWhatTheOthersLeave) {
  EXPECT_EQ(to_string(mesh_of(RunConfig(), 6)), "replicate 6, shard 1");
  for (size_t i = 0; i < kMeshAxes.size(); ++i) {
    RunConfig config = with_degrees_of({"auto", "1", "1", "1", "1"});
    config.parallel.degrees[i] = "auto";
    const Mesh mesh = mesh_of(config, 6);
    EXPECT_EQ(mesh.*kMeshAxes[i].degree, 6) << kMeshAxes[i].name;
    EXPECT_EQ(mesh.size(), 6);
  }
  EXPECT_EQ(to_string(mesh_of(with_degrees_of({"auto", "2", "1", "auto", "3"}), 24)),
            "replicate 1, shard 2, tensor 4, expert 3");
}

TEST(Mesh, DegreesThatCannotBeAreRefusedByTheirKeys) {
  const auto error = [](const ParallelConfig::Degrees& degrees, int ranks) {
    return error_of([&] { mesh_of(with_degrees_of(degrees), ranks); });
  };
  EXPECT_EQ(
      error({"auto", "auto", "1", "1", "auto"}, 4),
      "[parallel] several of shard, context, tensor and expert are auto; write numbers for all but one");
  EXPECT_EQ(error({"1", "1", "1", "1", "0"}, 4),
            "[parallel.expert] is '0'; expected a number of ranks, at least 1, or auto");
  EXPECT_EQ(error({"auto", "1", "1", "3", "1"}, 8),
            "[parallel] replicate auto and shard 1 and tensor 3 make 3 ranks, but there are 8; possible are "
            "{replicate: 8, shard: 1}, {replicate: 1, shard: 8}, {replicate: 4, shard: 2}");
  EXPECT_EQ(error({"2", "1", "1", "2", "2"}, 1),
            "[parallel] replicate 2 and shard 1 and tensor 2 and expert 2 make 8 ranks, but there is 1; "
            "possible are {replicate: 1, shard: 1}");
}

// Degrees are those of a stage.
TEST(Mesh, StagesHaveEqualPartsOfTheRanks) {
  RunConfig config = with_degrees_of({"auto", "1", "1", "2", "1"});
  config.parallel.pipeline = 3;
  EXPECT_EQ(to_string(mesh_of(config, 12)), "replicate 2, shard 1, tensor 2");
  EXPECT_EQ(
      error_of([&] { mesh_of(config, 8); }),
      "[parallel.pipeline] is 3, but the number of ranks is 8, which it does not divide; set it to 1, 2, "
      "4 or 8");
  EXPECT_EQ(error_of([&] { mesh_of(config, 9); }),
            "[parallel] replicate auto and shard 1 and tensor 2 make 2 ranks, but there are 3 in each of 3 "
            "stages; possible are {pipeline: 3, replicate: 3, shard: 1}, {pipeline: 3, replicate: 1, shard: "
            "3}, {pipeline: 3, replicate: 1, shard: 3, shard_level: 3}");
  config.parallel.pipeline = 1;
  config.parallel.pipeline_chunks = 2;
  expect_has(error_of([&] { mesh_of(config, 4); }), "[parallel.pipeline_chunks] is 2, but ");
}

TEST(Mesh, StagesHaveASchedule) {
  const auto refusal = [](int64_t stages, int64_t chunks, PipelineSchedule schedule) {
    RunConfig config = with_degrees_of({"auto", "1", "1", "1", "1"});
    config.parallel.pipeline = stages;
    config.parallel.pipeline_chunks = chunks;
    config.parallel.pipeline_schedule = schedule;
    return error_of([&] { mesh_of(config, 4); });
  };
  EXPECT_EQ(refusal(1, 1, PipelineSchedule::kAuto), "");
  EXPECT_EQ(refusal(2, 1, PipelineSchedule::kAuto), "");
  EXPECT_EQ(refusal(2, 1, PipelineSchedule::k1F1B), "");
  EXPECT_EQ(refusal(2, 1, PipelineSchedule::kZbH1), "");
  EXPECT_EQ(refusal(2, 3, PipelineSchedule::kAuto), "");
  EXPECT_EQ(refusal(2, 3, PipelineSchedule::kInterleaved), "");
  EXPECT_EQ(refusal(1, 1, PipelineSchedule::kZbH1),
            "[parallel.pipeline_schedule] is zb_h1, but it is about the passes of pipeline stages, and "
            "parallel.pipeline is 1; leave it out");
  for (const auto& [schedule, name] :
       {std::pair(PipelineSchedule::k1F1B, "1f1b"), std::pair(PipelineSchedule::kZbH1, "zb_h1")})
    EXPECT_EQ(
        refusal(2, 3, schedule),
        fmt::format("[parallel.pipeline_schedule] is {}, which has one part of the layers on each stage, "
                    "but parallel.pipeline_chunks is 3; set the schedule to interleaved, or "
                    "pipeline_chunks to 1",
                    name));
  EXPECT_EQ(refusal(2, 1, PipelineSchedule::kInterleaved),
            "[parallel.pipeline_schedule] is interleaved, which needs several parts of the layers on each "
            "stage, but parallel.pipeline_chunks is 1; set pipeline_chunks to 2 or more, or the schedule to "
            "1f1b");
  ParallelConfig keys;
  EXPECT_EQ(keys.schedule(), parallel::ScheduleKind::k1F1B);
  keys.pipeline_chunks = 2;
  EXPECT_EQ(keys.schedule(), parallel::ScheduleKind::kInterleaved);
}

TEST(Mesh, StagesRefuseWhatNeedsAllLayers) {
  const auto refusal = [](const char* type, const std::function<void(RunConfig&)>& change) {
    Json json = tiny_config(type);
    RunConfig config;
    config.parallel.pipeline = 2;
    change(config);
    return error_of([&] { check_mesh({}, models::configure(json, "config.json"), config); });
  };
  EXPECT_EQ(refusal("qwen3", [](RunConfig&) {}), "");
  EXPECT_EQ(refusal("qwen3_moe", [](RunConfig& run) { run.train.router.balance_loss = 0; }), "");
  EXPECT_EQ(
      refusal("qwen3", [](RunConfig& run) { run.parallel.pipeline_chunks = 2; }),
      "[parallel.pipeline] is 2, with 2 parts of the layers each, but the model has 2 layers, and each part "
      "needs one; possible are {pipeline: 2, replicate: 1, shard: 1}, {replicate: 2, shard: 1}, {replicate: "
      "1, shard: 2}");
  EXPECT_EQ(refusal("qwen3", [](RunConfig& run) { run.parallel.pipeline = 3; }),
            "[parallel.pipeline] is 3, but the model has 2 layers, and each part needs one; possible are "
            "{replicate: 3, shard: 1}, {replicate: 1, shard: 3}, {replicate: 1, shard: 3, shard_level: 3}");
  EXPECT_EQ(refusal("qwen3_moe", [](RunConfig& run) { run.train.router.balance_loss = 0.1; }), "");
  const auto of_recipe = [&](const char* recipe) {
    return refusal("qwen3", [&](RunConfig& run) { run.recipe = recipe; });
  };
  EXPECT_EQ(of_recipe("grpo"), "");
  EXPECT_EQ(of_recipe("distill"), "");
  expect_has(refusal("qwen3",
                     [](RunConfig& run) {
                       run.recipe = "distill";
                       run.adapters = {{.name = "a"}, {.name = "b"}};
                     }),
             "[parallel.pipeline] is 2, but recipe distill has a teacher in memory and 2 adapters");
  EXPECT_EQ(of_recipe("preference"), "");
  const auto later = [&](const std::function<void(RunConfig&)>& change) {
    return refusal("qwen3", [&](RunConfig& run) {
      run.parallel.pipeline_schedule = PipelineSchedule::kZbH1;
      change(run);
    });
  };
  EXPECT_EQ(later([](RunConfig&) {}), "");
  expect_has(
      later([](RunConfig& run) { run.adapters = {{.name = "a"}}; }),
      "[parallel.pipeline_schedule] is zb_h1, which computes the gradients of weight matrices later, but "
      "adapters train narrow matrices");
  expect_has(later([](RunConfig& run) { run.parallel.shard_level = 3; }), "parallel.shard_level: 3");
  const auto asked = [](RunConfig& run) { run.eval.exact_match = 1; };
  EXPECT_EQ(refusal("qwen3", asked), "");
  expect_has(refusal("qwen3",
                     [&](RunConfig& run) {
                       asked(run);
                       run.adapters = {{.name = "a"}};
                       run.model.base_dtype = primitives::FrozenFormat::kNf4;
                     }),
             "eval.exact_match");
}

// Without stages, and each layer between all ranks of a replica where its heads allow that.
TEST(Mesh, QuestionsAreAnsweredWithoutStages) {
  const layers::DecoderConfig model = models::configure(tiny_config("qwen3"), "config.json");
  RunConfig config;
  config.parallel.pipeline = 2;
  EXPECT_EQ(to_string(answering_mesh({.replicate = 2}, model, config)), "replicate 2, shard 1, tensor 2");
  EXPECT_EQ(to_string(answering_mesh({.context = 2, .tensor = 2}, model, config)),
            "replicate 2, shard 1, tensor 4");
  config.parallel.pipeline = 3;  // which do not divide four heads
  EXPECT_EQ(to_string(answering_mesh({.shard = 2, .tensor = 2, .shard_level = 3}, model, config)),
            "replicate 6, shard 1, tensor 2");
  EXPECT_EQ(to_string(answering_mesh({.expert = 2},
                                     models::configure(tiny_config("qwen3_moe"), "config.json"), config)),
            "replicate 3, shard 1, expert 2");
}

// As the keys say, or like questions.
TEST(Mesh, RolloutsOfStagesHaveNone) {
  const layers::DecoderConfig model = models::configure(tiny_config("qwen3"), "config.json");
  RunConfig config;
  config.recipe = "grpo";
  const auto mesh = [&](const std::optional<RolloutDegrees>& degrees, const Mesh& training) {
    const std::optional<Mesh> found = rollout_mesh(degrees, training, model, config);
    return found ? to_string(*found) : "that of training";
  };
  EXPECT_EQ(mesh({}, {.replicate = 2}), "that of training");
  EXPECT_EQ(mesh(RolloutDegrees{.tensor = 2}, {.replicate = 2}), "replicate 1, shard 1, tensor 2");
  config.parallel.pipeline = 2;
  EXPECT_EQ(mesh({}, {.replicate = 2}), "replicate 2, shard 1, tensor 2");
  EXPECT_EQ(mesh(RolloutDegrees{.tensor = 4}, {.replicate = 2}), "replicate 1, shard 1, tensor 4");
  EXPECT_EQ(mesh(RolloutDegrees{.tensor = 2}, {.tensor = 2}), "replicate 2, shard 1, tensor 2");
  EXPECT_EQ(mesh(RolloutDegrees{}, {}), "replicate 2, shard 1");
  expect_has(error_of([&] { mesh(RolloutDegrees{.tensor = 3}, {.replicate = 2}); }),
             "[grpo.engine.parallel] tensor 3 and expert 1 are 3 ranks, which 4 cannot be divided into");
}

// Four stages of two layers have none: two of them do, with the degrees that were named. What more stages
// than were named could do comes last.
TEST(Mesh, ProposalsHaveStages) {
  Json json = tiny_config("qwen3");
  json.set("num_hidden_layers", 2);
  const layers::DecoderConfig model = models::configure(json, "config.json");
  RunConfig config = with_degrees_of({"auto", "1", "1", "2", "1"});
  config.parallel.pipeline = 4;
  EXPECT_EQ(proposed_meshes(config, 8, &model),
            "{pipeline: 2, replicate: 2, shard: 1, tensor: 2}, {pipeline: 2, replicate: 1, shard: 2, tensor: "
            "2}, {pipeline: 2, replicate: 1, shard: 2, shard_level: 3, tensor: 2}");
  const auto mesh_of_last = [&](int64_t pipeline) {
    RunConfig other = with_degrees_of({"auto", "1", "1", "1", "1"});
    other.parallel.pipeline = pipeline;
    return proposed_meshes(other, 2, &model);
  };
  EXPECT_EQ(mesh_of_last(1),
            "{replicate: 2, shard: 1}, {replicate: 1, shard: 2}, {replicate: 1, shard: 2, shard_level: 3}");
  EXPECT_EQ(mesh_of_last(2),
            "{pipeline: 2, replicate: 1, shard: 1}, {replicate: 2, shard: 1}, {replicate: 1, shard: 2}");
}

// What the configuration says of axes that divide layers stays where it can; each level is on its axis.
TEST(Mesh, ProposalsKeepTheDegreesOfDividedLayers) {
  EXPECT_EQ(
      proposed_meshes(with_degrees_of({"1", "1", "1", "2", "4"}), 8),
      "{replicate: 1, shard: 1, tensor: 2, expert: 4}, {replicate: 1, shard: 1, shard_level: 3, tensor: "
      "2, expert: 4}, {replicate: 4, shard: 1, expert: 2}");
  EXPECT_EQ(
      proposed_meshes(with_degrees_of({"1", "1", "1", "2", "2"}), 4),
      "{replicate: 1, shard: 1, tensor: 2, expert: 2}, {replicate: 1, shard: 1, shard_level: 3, tensor: "
      "2, expert: 2}, {replicate: 2, shard: 1, context: 2}");
}

}  // namespace
}  // namespace temper::recipes
