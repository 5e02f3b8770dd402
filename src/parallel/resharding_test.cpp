// Weights go from any mesh to any other: what ranks have then is what they load from the folder.
#include "weights/resharding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "models/adapter.h"
#include "parallel/mesh_groups.h"
#include "parallel/weight_copy.h"
#include "tests/support/errors.h"
#include "tests/support/meshes.h"
#include "tests/support/tiny_model.h"

namespace temper::parallel {
namespace {

// Heads, experts, states and a vocabulary that eight ranks divide, fewer heads of keys than that, and a head
// that is the embedding or one of its own. Of the vocabulary some rows are there to fill it up.
Json resharded_config(const char* type, bool tied) {
  Json config = tiny_config(type);
  config.set("tie_word_embeddings", tied);
  config.set("num_attention_heads", 8);
  const std::string_view family = type;
  config.set("num_key_value_heads", family == "deepseek_v3" ? 8 : 2);
  if (family == "qwen3_moe" || family == "qwen3_next") config.set("num_experts", 8);
  if (family == "qwen3_next")
    for (const char* heads : {"linear_num_key_heads", "linear_num_value_heads"}) config.set(heads, 8);
  return config;
}

bool has_experts(const char* type) {
  return std::string_view(type) == "qwen3_moe" || std::string_view(type) == "qwen3_next";
}

std::vector<Mesh> meshes_to_train_on(int ranks, bool experts) {
  std::vector<Mesh> meshes;
  for (Mesh mesh : all_meshes(ranks))
    for (const int level : {1, 3}) {
      mesh.shard_level = level;
      if ((experts || mesh.expert == 1) && (level == 1 || mesh.shard * mesh.context * mesh.expert > 1))
        meshes.push_back(mesh);
    }
  return meshes;
}

std::vector<Mesh> meshes_to_roll_out_on(int ranks, bool experts) {
  std::vector<Mesh> meshes;
  for (const Mesh& mesh : all_meshes(ranks))
    if (mesh.shard == 1 && (experts || mesh.expert == 1)) meshes.push_back(mesh);
  return meshes;
}

std::vector<Layout> layouts_on(const WeightTable& table, const Mesh& mesh) {
  std::vector<Layout> layouts;
  for (int rank = 0; rank < mesh.size(); ++rank) layouts.emplace_back(table, mesh, rank);
  return layouts;
}

// One parameter, whose elements are numbered, on all ranks at once.
void expect_moved(const std::vector<Layout>& from, const std::vector<Layout>& to, size_t parameter) {
  std::vector<Placement> held, wanted;
  for (const Layout& layout : from) held.push_back(layout[parameter]);
  for (const Layout& layout : to) wanted.push_back(layout[parameter]);
  const Tensor whole = Tensor::empty(held.front().whole(), DType::kF32);
  for (int64_t i = 0; i < whole.numel(); ++i) whole.data<float>()[i] = static_cast<float>(i);
  const auto part_of = [&](const Placement& placement) {
    const Tensor part = Tensor::empty(placement.own(), DType::kF32);
    placement.take_own(whole, part);
    return part;
  };
  std::vector<Resharding> tables;
  std::vector<Tensor> before, after;
  const auto ranks = static_cast<int>(held.size());
  for (int rank = 0; rank < ranks; ++rank) {
    tables.emplace_back(held, wanted, rank);
    before.push_back(part_of(held[static_cast<size_t>(rank)]));
    after.push_back(Tensor::zeros(wanted[static_cast<size_t>(rank)].own(), DType::kF32));
  }
  for (size_t receiver = 0; receiver < tables.size(); ++receiver) {
    int64_t moved = 0;
    for (size_t sender = 0; sender < tables.size(); ++sender) {
      const Resharding::Moves& moves = tables[sender].sent_to(static_cast<int>(receiver));
      EXPECT_EQ(tables[receiver].received_from(static_cast<int>(sender)), moves);
      if (sender != receiver && !moves.empty()) {
        EXPECT_TRUE(tables[receiver].travels());
      }
      for (const Resharding::Move& move : moves)
        for (int64_t i = 0; i < move.repeats; ++i)
          std::memcpy(after[receiver].data<float>() + move.to + i * move.to_stride,
                      before[sender].data<float>() + move.from + i * move.from_stride,
                      static_cast<size_t>(move.count) * sizeof(float));
      for (const Resharding::Move& move : moves) moved += move.elements();
    }
    // Each once.
    EXPECT_EQ(moved, after[receiver].numel());
    const Tensor expected = part_of(wanted[receiver]);
    EXPECT_EQ(std::memcmp(after[receiver].raw(), expected.raw(), static_cast<size_t>(expected.bytes())), 0);
  }
}

TEST(Resharding, IsFromAnyMeshToAnyOther) {
  for (const char* type : {"qwen3", "deepseek_v3", "qwen3_moe", "qwen3_next"}) {
    const auto architecture = models::configure(resharded_config(type, false), "tiny");
    const WeightTable table = layers::decoder_weight_table(architecture);
    for (const int ranks : {1, 2, 4, 8})
      for (const Mesh& training : meshes_to_train_on(ranks, has_experts(type))) {
        const std::vector<Layout> from = layouts_on(table, training);
        for (const Mesh& rollouts : meshes_to_roll_out_on(ranks, has_experts(type))) {
          SCOPED_TRACE(fmt::format("{}: {} to {}", type, to_string(training), to_string(rollouts)));
          const std::vector<Layout> to = layouts_on(table, rollouts);
          for (size_t i = 0; i < table.specs().size(); ++i) expect_moved(from, to, i);
          if (testing::Test::HasFailure()) return;
        }
      }
  }
}

// What replicas have already stays where it is, and what travels is made of few runs.
TEST(Resharding, MovesWhatIsMissing) {
  const WeightTable table =
      layers::decoder_weight_table(models::configure(resharded_config("qwen3", false), "tiny"));
  const Mesh whole{.replicate = 4}, divided{.tensor = 4}, sharded{.shard = 4, .shard_level = 3};
  const auto tables = [&](const Mesh& from, const Mesh& to, size_t parameter) {
    std::vector<Placement> held, wanted;
    for (const Layout& layout : layouts_on(table, from)) held.push_back(layout[parameter]);
    for (const Layout& layout : layouts_on(table, to)) wanted.push_back(layout[parameter]);
    return Resharding(held, wanted, 1);
  };
  for (size_t i = 0; i < table.specs().size(); ++i) {
    EXPECT_FALSE(tables(whole, divided, i).travels());
    EXPECT_EQ(tables(sharded, whole, i).travels(), Layout(table, sharded)[i].is_flat());
    // A matrix whose columns are divided has a run in each row, which are one move.
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_LE(tables(whole, divided, i).received_from(rank).size(), 3u) << table.specs()[i].name;
  }
}

struct ReshardedCase {
  const char* type;
  bool tied;
};

class ReshardedModels : public testing::TestWithParam<ReshardedCase> {};

TEST_P(ReshardedModels, AreWhatTheFolderHas) {
  const auto [type, tied] = GetParam();
  const TemporaryDirectory folder;
  models::BuildOptions build;
  build.ops = ops::all_eager();
  build.purpose = models::Purpose::kTraining;
  {
    const auto model = models::build_model(resharded_config(type, tied), "tiny", build);
    model->decoder.parameters().initialize(7, 0.1);
    models::save_model(*model, folder.path() + "/model", "");
  }
  std::vector<std::pair<Mesh, Mesh>> pairs{
      {{}, {}},
      {{.shard = 2, .shard_level = 3}, {.replicate = 2}},
      {{.shard = 2, .shard_level = 3}, {.tensor = 2}},
      {{.tensor = 2}, {.replicate = 2}},
      {{.shard = 2, .tensor = 2, .shard_level = 3}, {.tensor = 4}},
      {{.tensor = 4}, {.replicate = 2, .tensor = 2}},
      {{.shard = 4, .tensor = 2, .shard_level = 3}, {.replicate = 2, .tensor = 4}},
  };
  if (has_experts(type)) {
    pairs.push_back({{.shard = 2, .expert = 2, .shard_level = 3}, {.tensor = 2, .expert = 2}});
    pairs.push_back({{.expert = 8}, {.replicate = 2, .tensor = 2, .expert = 2}});
  }
  for (const auto& [training, rollouts] : pairs) {
    SCOPED_TRACE(fmt::format("{} to {}", to_string(training), to_string(rollouts)));
    const auto body = [&, &training = training, &rollouts = rollouts](collectives::Group& all) {
      const MeshGroups of_training(all, training), of_rollouts(all, rollouts);
      models::BuildOptions own = build;
      own.ranks = of_training.model();
      const auto trained = models::load_model(folder.path() + "/model", own);
      own.ranks = of_rollouts.model();
      const auto loaded = models::load_model(folder.path() + "/model", own),
                 rolls = models::build_model(loaded->config, "tiny", own);
      layers::ParameterStore &to = rolls->decoder.parameters(), &expected = loaded->decoder.parameters();
      to.initialize(1, 1);
      const uint64_t version = to.version();
      WeightCopy copy(trained->decoder.parameters(), to, all);
      copy.run();
      EXPECT_NE(to.version(), version);
      copy.check();
      for (size_t i = 0; i < to.size(); ++i)
        EXPECT_EQ(std::memcmp(to.own(i).raw(), expected.own(i).raw(), static_cast<size_t>(to.own(i).bytes())),
                  0)
            << to.spec(i).name;
      // A single bit on the last rank is found there.
      if (all.rank() + 1 < all.size()) return copy.check();
      *static_cast<uint8_t*>(to.own(to.size() - 1).raw()) ^= 1;
      expect_has(error_of([&] { copy.check(); }, ErrorKind::kDefect),
                 "[grpo.engine.check_sync] after a copy '" + to.spec(to.size() - 1).name);
    };
    if (training.size() == 1)
      body(collectives::alone());
    else
      collectives::launch("threads", {.ranks = training.size()}, body);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReshardedModels,
                         testing::Values(ReshardedCase{"qwen3", true}, ReshardedCase{"qwen3", false},
                                         ReshardedCase{"deepseek_v3", false},
                                         ReshardedCase{"qwen3_moe", false},
                                         ReshardedCase{"qwen3_next", true}),
                         [](const auto& info) {
                           return std::string(info.param.type) + (info.param.tied ? "_tied" : "");
                         });

}  // namespace
}  // namespace temper::parallel
