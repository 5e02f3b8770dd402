// Replicas of ranks that share states, sums of gradients or weights learn what one rank does: its gradients
// and its weights, element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "collectives/launch.h"
#include "parallel/mesh_groups.h"
#include "recipes/learner/whole_elements_test_support.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/objectives/gather_rows.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using collectives::Group;

constexpr int kUpdates = 4;
constexpr double kTolerance = 5e-5;

struct Course {
  std::vector<double> losses, norms;
  std::vector<std::vector<PlacedTensor>> gradients, weights;  // of each update; before clipping
  std::unique_ptr<models::Model> model;                       // whose placements they have
  std::unique_ptr<optimizers::AdamW> optimizer;
};

std::vector<data::PackedRow> rows_of(int update) {
  std::vector<data::PackedRow> rows;
  for (uint32_t row = 0; row < 9; ++row)
    rows.push_back(test_row(100 * static_cast<uint32_t>(update) + row, {3 + 2 * row, 5}));
  rows.push_back(test_row(static_cast<uint32_t>(update), {1, 2, 7, 10}));
  return rows;
}

Course learn(const parallel::MeshGroups& groups, const char* type) {
  Json config = tiny_config(type);
  if (config.find("num_experts") != nullptr) config.set("num_experts", 8);
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = ops::all_eager();
  build.purpose = models::Purpose::kTraining;
  build.ranks = groups.model();
  Course course;
  course.model = models::build_model(config, "tiny", build);
  layers::Decoder& decoder = course.model->decoder;
  layers::ParameterStore& parameters = decoder.parameters();
  parameters.initialize(3, 0.1);
  // Far above the rounding of gradients: AdamW makes whole steps of small ones.
  course.optimizer = std::make_unique<optimizers::AdamW>(
      parameters, decoder.ops(), optimizers::AdamWOptions{.eps = 1e-3}, groups.sharing());
  training::Trainer trainer(decoder, *course.optimizer, {.max_grad_norm = 0.5, .micro_batch_tokens = 20},
                            nullptr, groups.update());
  for (int update = 0; update < kUpdates; ++update) {
    const training::StepResult result = trainer.step(
        training::rows_of_rank(rows_of(update), groups.rows().rank(), groups.rows().size()), 3e-3);
    course.losses.push_back(result.loss);
    course.norms.push_back(result.grad_norm);
    course.gradients.push_back(copies_of(course.optimizer->summed_gradients()));
    course.weights.push_back(copies_of(parameters.placed()));
  }
  return course;
}

void expect_course(const Course& found, const Course& expected) {
  for (size_t i = 0; i < kUpdates; ++i) {
    SCOPED_TRACE(i);
    EXPECT_NEAR(found.losses[i], expected.losses[i], kTolerance * expected.losses[i]);
    EXPECT_NEAR(found.norms[i], expected.norms[i], kTolerance * expected.norms[i]);
    expect_elements(found.gradients[i], elements_of(expected.gradients[i]), kTolerance);
    expect_elements(found.weights[i], elements_of(expected.weights[i]), kTolerance);
  }
}

void expect_one(const char* type, const std::vector<Mesh>& meshes, int levels = 3) {
  const Course expected = learn(parallel::MeshGroups(collectives::alone(), {}), type);
  for (const double norm : expected.norms) EXPECT_GT(norm, 0.1) << "rounding is far below";
  for (Mesh mesh : meshes)
    for (mesh.shard_level = 1; mesh.shard_level <= levels; ++mesh.shard_level) {
      SCOPED_TRACE(fmt::format("{}, {}, level {}", type, to_string(mesh), mesh.shard_level));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        const parallel::MeshGroups groups(ranks, mesh);
        const Course found = learn(groups, type);
        const std::lock_guard lock(mutex);
        expect_course(found, expected);
      });
    }
}

TEST(TrainerMeshes, ReplicasOfShardsLearnWhatOneRankDoes) {
  expect_one("qwen3", {{.replicate = 2, .shard = 2}});
}

TEST(TrainerMeshes, ReplicasOfDividedExpertsLearnWhatOneRankDoes) {
  expect_one("qwen3_moe", {{.replicate = 2, .expert = 2}, {.replicate = 2, .shard = 2, .expert = 2}});
}

// Key heads are shared where there are fewer than context ranks; documents of any lengths lie across the
// borders of the ranks' tokens.
TEST(TrainerMeshes, ContextRanksLearnWhatOneRankDoes) {
  expect_one("qwen3", {{.replicate = 2, .context = 2}});
  for (const char* const type :
       {"qwen3", "gpt_oss", "gemma3_text", "olmo2", "deepseek_v3", "qwen3_next", "qwen3_5_text"})
    expect_one(type, {{.context = 2}, {.context = 4}, {.context = 2, .tensor = 2}}, 1);
  expect_one("qwen3_moe", {{.context = 2, .expert = 2}, {.context = 2, .tensor = 2, .expert = 2}}, 1);
}

// All tokens of some heads, where states of delta layers could pass from rank to rank.
TEST(TrainerMeshes, ContextRanksThatExchangeHeadsLearnWhatOneRankDoes) {
  constexpr ContextMethod kHeads = ContextMethod::kHeads;
  for (const char* const type : {"qwen3_next", "qwen3_5_text"})
    expect_one(type, {{.context = 2, .context_method = kHeads}, {.context = 4, .context_method = kHeads}}, 1);
}

// Pieces of rows that cost alike are on a rank then, and keys travel, also where heads could.
TEST(TrainerMeshes, ContextRanksThatGatherKeysLearnWhatOneRankDoes) {
  constexpr ContextMethod kKeys = ContextMethod::kKeys;
  for (const char* const type :
       {"qwen3", "gpt_oss", "gemma3_text", "deepseek_v3", "qwen3_next", "qwen3_5_text"})
    expect_one(type, {{.context = 2, .context_method = kKeys}, {.context = 4, .context_method = kKeys}}, 1);
  expect_one("qwen3_moe", {{.context = 2, .tensor = 2, .expert = 2, .context_method = kKeys}}, 1);
  expect_one("olmo2", {{.context = 8, .context_method = kKeys}}, 1);  // more ranks than heads
}

// Two groups of two ranks each, or of four: heads travel within a group, and keys and values between groups.
TEST(TrainerMeshes, GroupsOfContextRanksLearnWhatOneRankDoes) {
  constexpr ContextMethod kBoth = ContextMethod::kBoth;
  for (const char* const type :
       {"qwen3", "gpt_oss", "gemma3_text", "olmo2", "deepseek_v3", "qwen3_next", "qwen3_5_text"})
    expect_one(type, {{.context = 4, .context_method = kBoth}}, 1);
  expect_one(
      "qwen3",
      {{.context = 8}, {.context = 4, .tensor = 2}, {.replicate = 2, .context = 4, .context_heads = 2}}, 1);
  expect_one("qwen3_moe", {{.context = 4, .expert = 2, .context_method = kBoth}}, 1);
  expect_one("deepseek_v3", {{.context = 4, .context_method = kBoth}}, 3);
}

}  // namespace
}  // namespace temper::recipes
