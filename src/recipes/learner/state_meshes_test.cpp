// What ranks save on one mesh, ranks of any other mesh read: masters, moments and weights, bit by bit.
// TEMPER_ALL_STATE_PAIRS=1 goes through every mesh of 1, 2, 4 and 8 ranks with every other.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "base/files.h"
#include "base/hash.h"
#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "collectives/launch.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "tests/support/meshes.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

using collectives::Group;

// Experts, widths and heads that eight ranks divide, and fewer heads of keys than that.
Json saved_mixture() {
  Json config = tiny_config("qwen3_moe");
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"num_experts", 8}, {"num_attention_heads", 8}, {"num_key_value_heads", 2}})
    config.set(key, value);
  return config;
}

struct Case {
  const char* name;
  DType dtype;
  layers::StateFormat format;
  bool adapter;
};

// What a rank trains, with its state.
struct SavedRun {
  SavedRun(Group& ranks, const Mesh& mesh, const Case& of) : groups(ranks, mesh) {
    models::BuildOptions build;
    build.dtype = of.dtype;
    build.ops = ops::all_eager();
    build.purpose = models::Purpose::kTraining;
    build.format = of.format;
    build.ranks = parallel::with_parts(groups.model(), models::configure(saved_mixture(), "tiny"));
    model = models::build_model(saved_mixture(), "tiny", build);
    model->decoder.parameters().initialize(3, 0.1);
    if (of.adapter)
      adapter = models::new_adapter(
          *model, {.rank = 8, .targets = {.names = {"q_proj", "k_proj", "v_proj", "o_proj"}}}, 1, "");
    optimizer = std::make_unique<optimizers::AdamW>(
        parameters(), model->decoder.ops(), optimizers::AdamWOptions{.format = of.format}, groups.sharing());
  }
  layers::ParameterStore& parameters() {
    return adapter ? adapter->parameters() : model->decoder.parameters();
  }

  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<layers::Adapter> adapter;
  std::unique_ptr<optimizers::AdamW> optimizer;
};

// Of element `e` of the whole of a tensor: exact in bfloat16, and unlike those nearby.
float number_of(const std::string& tensor, int64_t e) {
  const auto name = static_cast<int64_t>(hash64(tensor) % 1009);
  return static_cast<float>((e * 31 + e / 127 + name * 17) % 251);
}

void fill(const std::vector<PlacedTensor>& state) {
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor here = Tensor::empty(state[i].own.shape(), DType::kF32);
    for (const Slice& run : state[i].placement->runs(state[i].placement->part()))
      for (int64_t e = 0; e < run.count; ++e)
        here.data<float>()[run.own + e] = number_of(state[i].name, run.whole + e);
    state[i].own.copy_from(here);
  }
}

int64_t count_others(const std::vector<PlacedTensor>& state) {
  int64_t others = 0;
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor here = state[i].own.to(DType::kF32);
    for (const Slice& run : state[i].placement->runs(state[i].placement->part()))
      for (int64_t e = 0; e < run.count; ++e)
        others += here.data<float>()[run.own + e] == number_of(state[i].name, run.whole + e) ? 0 : 1;
  }
  return others;
}

bool is_divisible(const Mesh& mesh, const Case& of) {
  return !of.adapter || mesh.expert == 1 || mesh.shard_level < 3;
}

std::vector<Mesh> meshes_of(int ranks, const Case& of) {
  std::vector<Mesh> meshes;
  for (Mesh mesh : all_meshes(ranks))
    for (mesh.shard_level = 1; mesh.shard_level <= 3; ++mesh.shard_level)
      if ((mesh.shard_level == 1 || mesh.shard * mesh.context * mesh.expert > 1) && is_divisible(mesh, of))
        meshes.push_back(mesh);
  return meshes;
}

class StateMeshes : public testing::TestWithParam<Case> {
 protected:
  void save(const Mesh& mesh, const std::string& root, int stages = 1) {
    collectives::launch("threads", {.ranks = mesh.size() * stages, .deadline = 120}, [&](Group& ranks) {
      SavedRun trained(ranks, mesh, GetParam());
      fill(trained.optimizer->state());
      checkpoints::SharedState state(root, 1, checkpoints::owner_of_states(ranks));
      state.write([&](checkpoints::StateWriter& writer) {
        checkpoints::OwnedTensors(trained.optimizer->state(), ranks.rank())
            .add_to(writer, "optimizer", ranks.rank(), ranks.size());
      });
      state.commit(ranks);
    });
  }

  void expect_read(const Mesh& mesh, const std::vector<std::string>& roots, int stages = 1) {
    std::atomic<int64_t> others = 0;
    collectives::launch("threads", {.ranks = mesh.size() * stages, .deadline = 120}, [&](Group& ranks) {
      SavedRun trained(ranks, mesh, GetParam());
      for (const std::string& root : roots) {
        for (const PlacedTensor& tensor : trained.optimizer->state()) tensor.own.fill_zero();
        checkpoints::read_placed(*checkpoints::open_newest(root, ranks), "optimizer",
                                 trained.optimizer->state());
        others += count_others(trained.optimizer->state());
        // Parameters are rounded masters, on every rank that has them.
        trained.optimizer->restored(1);
        others += count_other_weights(trained);
      }
    });
    EXPECT_EQ(others, 0) << to_string(mesh) << ", stages " << stages;
  }

  static int64_t count_other_weights(SavedRun& trained) {
    int64_t others = 0;
    const std::vector<PlacedTensor> state = trained.optimizer->state(),
                                    weights = trained.parameters().placed();
    for (const PlacedTensor& weight : weights)
      for (size_t i = 0; i < state.size(); ++i) {
        if (state[i].name != "master." + weight.name && state[i].name != "parameter." + weight.name) continue;
        const Tensor here = weight.own.to(DType::kF32);
        for (const Slice& run : weight.placement->runs(weight.placement->part()))
          for (int64_t e = 0; e < run.count; ++e)
            others += here.data<float>()[run.own + e] == number_of(state[i].name, run.whole + e) ? 0 : 1;
      }
    return others;
  }

  TemporaryDirectory folder;
};

TEST_P(StateMeshes, ReadWhatOthersSaved) {
  const bool all = std::getenv("TEMPER_ALL_STATE_PAIRS") != nullptr;
  std::vector<Mesh> meshes;
  for (const int ranks : {1, 2, 4, 8})
    for (const Mesh& mesh : meshes_of(ranks, GetParam()))
      if (all || ranks < 4 || (mesh.size() / mesh.replicate == ranks && mesh.shard_level != 2))
        meshes.push_back(mesh);
  // Without all pairs some meshes of each number of ranks, and of each mesh two others'.
  if (!all)
    for (size_t i = 12; i < meshes.size(); i += 2)
      meshes.erase(meshes.begin() + static_cast<std::ptrdiff_t>(i));
  std::vector<std::string> roots;
  for (size_t i = 0; i < meshes.size(); ++i) {
    roots.push_back(folder / std::to_string(i));
    save(meshes[i], roots.back());
  }
  int64_t pairs = 0;
  for (size_t i = 0; i < meshes.size(); ++i) {
    std::vector<std::string> read = roots;
    if (!all) read = {roots[(i + 1) % roots.size()], roots[(i + roots.size() / 2) % roots.size()]};
    expect_read(meshes[i], read);
    pairs += static_cast<int64_t>(read.size());
  }
  RecordProperty("meshes", static_cast<int>(meshes.size()));
  RecordProperty("pairs", static_cast<int>(pairs));
  std::printf("%zu meshes, %lld pairs\n", meshes.size(), static_cast<long long>(pairs));
}

// The embedding, which is the head, too, is on both stages.
TEST_P(StateMeshes, OfStagesAreReadByAll) {
  std::vector<Mesh> meshes = meshes_of(2, GetParam());
  meshes.emplace_back();
  std::vector<std::string> roots;
  for (const int stages : {1, 2})
    for (const Mesh& mesh : meshes) {
      roots.push_back(folder / std::to_string(roots.size()));
      save(mesh, roots.back(), stages);
    }
  for (const int stages : {1, 2})
    for (const Mesh& mesh : meshes) expect_read(mesh, roots, stages);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, StateMeshes,
    testing::Values(Case{"float32", DType::kF32, {}, false},
                    Case{"bfloat16_with_masters", DType::kBF16, {true, DType::kF32, DType::kBF16}, false},
                    Case{"adapters", DType::kF32, {}, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace temper::recipes
