// Ranks that divide a model answer what one rank answers, whatever they divide.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "models/adapter.h"
#include "parallel/mesh_groups.h"
#include "rollout/engine_of_ranks.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

struct AnsweringModel {
  const char* type;
  bool adapter = false;
};

// Heads, widths and experts that four ranks divide, and fewer heads of keys than that.
Json divisible_config(const char* type) {
  Json config = tiny_config(type);
  const std::string_view family = type;
  if (family == "qwen3_moe" || family == "qwen3_next") config.set("num_experts", 8);
  if (family == "qwen3_next") {
    config.set("linear_num_key_heads", 4);
    config.set("linear_num_value_heads", 8);
  }
  return config;
}

struct Answering {
  Answering(collectives::Group& ranks, const Mesh& mesh, const AnsweringModel& of) : groups(ranks, mesh) {
    models::BuildOptions build;
    build.ops = ops::all_eager();
    build.purpose = models::Purpose::kTraining;
    build.ranks = groups.model();
    model = models::build_model(divisible_config(of.type), "tiny", build);
    model->decoder.parameters().initialize(3, 0.3);
    if (!of.adapter) return;
    adapter = models::new_adapter(*model, {.rank = 4}, 1, "");
    adapter->parameters().initialize(5, 0.3);  // its product is no longer nothing
  }
  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<layers::Adapter> adapter;
};

constexpr int kRequests = 7;

std::vector<int32_t> asked_prompt(int number) {
  std::vector<int32_t> ids{7, 7, 9};  // a beginning that all of them share
  for (int i = 0; i < 3 * number; ++i) ids.push_back((number * 31 + i * 5) % 48);
  return ids;
}

// Of the requests that are this rank's by its place among ranks with rows of their own: all of them are asked
// at once, and the last one when another is finished.
std::map<int, rollout::Completion> answered(const Answering& by, double temperature) {
  collectives::Group& data = by.groups.data();
  rollout::EngineOptions options;
  options.cache_tokens = 256;
  options.max_running = 3;
  options.chunk_tokens = 64;
  rollout::Request like;
  like.sampling = {.temperature = temperature};
  like.adapter = by.adapter.get();
  rollout::EngineOfRanks engine(by.model->decoder, options, nullptr);
  engine.set_like(like);
  std::vector<int> own;
  for (int i = data.rank(); i < kRequests; i += data.size()) own.push_back(i);
  std::map<int64_t, int> asked;
  const auto ask = [&] {
    // Some are longer than others, so that ranks have nothing to do at different times.
    if (asked.size() < own.size()) {
      const int number = own[asked.size()];
      asked[engine.add(asked_prompt(number), 3 + 2 * number, static_cast<uint64_t>(number))] = number;
    }
  };
  std::map<int, rollout::Completion> found;
  if (engine.leads())
    for (size_t i = 0; i + 1 < own.size() || i == 0; ++i) ask();
  using Round = rollout::EngineOfRanks::Round;
  for (;;) {
    const bool done = !engine.leads() || found.size() == own.size();
    if (engine.round(done) == Round::kDone) break;
    for (rollout::Completion& each : engine.take_finished()) {
      const int number = asked.at(each.id);
      found[number] = std::move(each);
      ask();
    }
  }
  return found;
}

class RolloutMeshes : public testing::TestWithParam<AnsweringModel> {};

TEST_P(RolloutMeshes, AnswerWhatOneRankDoes) {
  const AnsweringModel of = GetParam();
  const bool experts = std::string_view(of.type) == "qwen3_moe" || std::string_view(of.type) == "qwen3_next";
  std::vector<Mesh> meshes{{.tensor = 2},
                           {.tensor = 4},
                           {.replicate = 2, .tensor = 2},
                           {.shard = 2, .shard_level = 3},
                           {.shard = 4, .shard_level = 3},
                           {.shard = 2, .tensor = 2, .shard_level = 3}};
  if (experts)
    for (const Mesh& mesh : {Mesh{.expert = 2}, Mesh{.expert = 4}, Mesh{.tensor = 2, .expert = 2},
                             Mesh{.shard = 2, .expert = 2, .shard_level = 3}})
      meshes.push_back(mesh);
  for (const double temperature : {0.0, 1.0}) {
    const auto expected = answered(Answering(collectives::alone(), {}, of), temperature);
    ASSERT_EQ(expected.size(), kRequests);
    for (const Mesh& mesh : meshes) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      std::map<int, rollout::Completion> found;
      collectives::launch("threads", {.ranks = mesh.size()}, [&](collectives::Group& all) {
        auto own = answered(Answering(all, mesh, of), temperature);
        const std::lock_guard lock(mutex);
        found.merge(own);
        EXPECT_TRUE(own.empty());  // no process answers the requests of another
      });
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [number, completion] : expected) {
        const rollout::Completion& other = found.at(number);
        EXPECT_EQ(other.ids, completion.ids) << number;
        ASSERT_EQ(other.columns.rollout_log_probs.size(), completion.columns.rollout_log_probs.size());
        for (size_t i = 0; i < completion.columns.rollout_log_probs.size(); ++i)
          EXPECT_NEAR(other.columns.rollout_log_probs[i], completion.columns.rollout_log_probs[i], 1e-5)
              << number << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RolloutMeshes,
                         testing::Values(AnsweringModel{"qwen3"}, AnsweringModel{"qwen3", true},
                                         AnsweringModel{"gemma3_text"}, AnsweringModel{"deepseek_v3"},
                                         AnsweringModel{"qwen3_moe"}, AnsweringModel{"qwen3_moe", true},
                                         AnsweringModel{"qwen3_next"}, AnsweringModel{"qwen3_next", true}),
                         [](const auto& info) {
                           return std::string(info.param.type) + (info.param.adapter ? "_adapter" : "");
                         });

}  // namespace
}  // namespace temper::recipes
