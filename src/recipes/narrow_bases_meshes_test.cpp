// Frozen bases in 4 bits on ranks that divide the model: codes are those of whole matrices, and adapters
// learn what they learn on one rank.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/files.h"
#include "collectives/launch.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "recipes/mesh_groups.h"
#include "tests/support/errors.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"

namespace temper::recipes {
namespace {

using collectives::Group;
using primitives::FrozenFormat;

// Widths of which parts begin within blocks of 64, and experts and heads that four ranks divide.
Json mixture() {
  Json config = tiny_config("qwen3_moe");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_experts", 4},
                                                              {"num_attention_heads", 8},
                                                              {"num_key_value_heads", 2},
                                                              {"moe_intermediate_size", 24},
                                                              {"head_dim", 16}})
    config.set(key, value);
  return config;
}

models::BuildOptions plain() {
  models::BuildOptions build;
  build.dtype = DType::kF32;
  build.ops = ops::all_eager();
  build.purpose = models::Purpose::kTraining;
  return build;
}

struct Ranked {
  Ranked(Group& ranks, const Mesh& mesh, FrozenFormat format, const std::string& folder)
      : groups(ranks, mesh) {
    models::BuildOptions build = plain();
    build.base_dtype = format;
    build.ranks = groups.model();
    model = models::load_model(folder, build);
  }
  MeshGroups groups;
  std::unique_ptr<models::Model> model;
};

// What the frozen matrices mean, by their names.
using Matrices = std::map<std::string, Tensor>;
Matrices matrices_of(const layers::ParameterStore& parameters) {
  Matrices all;
  for (const WeightSpec& spec : parameters.table().specs())
    if (spec.quantize) all[spec.name] = parameters.value(spec.name);
  return all;
}

// A folder of a model in float32.
void save(const std::string& folder) {
  const auto model = models::build_model(mixture(), "tiny", plain());
  model->decoder.parameters().initialize(3, 0.1);
  models::save_model(*model, folder, "");
}

struct Learnt {
  std::vector<double> losses, norms;
};

Learnt learn(Ranked& ranked) {
  const auto adapter = models::new_adapter(
      *ranked.model, {.rank = 4, .targets = {.names = {"q_proj", "k_proj", "v_proj", "o_proj"}}}, 1, "");
  optimizers::AdamW optimizer(adapter->parameters(), ranked.model->decoder.ops(), {},
                              ranked.groups.sharing());
  training::AdapterTrainer trainer(ranked.model->decoder, {}, ranked.groups.data());
  std::vector<data::PackedRow> rows;
  const Group& data = ranked.groups.data();
  for (uint32_t row = 0; row < 4; ++row)
    if (static_cast<int>(row) * data.size() / 4 == data.rank()) rows.push_back(test_row(row, {7, 5}));
  Learnt learnt;
  for (int step = 0; step < 3; ++step) {
    const training::StepResult result =
        trainer.begin({{.adapter = adapter.get(), .optimizer = &optimizer, .rows = &rows, .lr = 1e-2}})[0]
            .wait();
    learnt.losses.push_back(result.loss);
    learnt.norms.push_back(result.grad_norm);
  }
  return learnt;
}

TEST(NarrowBases, OnRanksHaveTheCodesOfOne) {
  const TemporaryDirectory out;
  save(out / "model");
  for (const FrozenFormat format : {FrozenFormat::kNf4, FrozenFormat::kNf4Double}) {
    SCOPED_TRACE(format == FrozenFormat::kNf4 ? "nf4" : "nf4_double");
    Matrices whole;
    Learnt expected;
    collectives::launch("local", {}, [&](Group& alone) {
      Ranked one(alone, {}, format, out / "model");
      whole = matrices_of(one.model->decoder.parameters());
      expected = learn(one);
    });
    ASSERT_GE(whole.size(), 6u);
    for (const Mesh& mesh :
         {Mesh{.tensor = 2}, Mesh{.tensor = 4}, Mesh{.expert = 4}, Mesh{.tensor = 2, .expert = 2},
          Mesh{.shard = 2, .tensor = 2, .shard_level = 2}}) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        Ranked ranked(ranks, mesh, format, out / "model");
        const layers::ParameterStore& parameters = ranked.model->decoder.parameters();
        {
          const std::lock_guard lock(mutex);
          for (const auto& [name, own] : matrices_of(parameters)) {
            const Placement& placement = parameters.layout()[parameters.index_of(name)];
            const Tensor wanted = Tensor::empty(placement.own(), DType::kF32);
            placement.take_own(whole.at(name), wanted);
            ASSERT_EQ(own.shape(), wanted.shape()) << name;
            EXPECT_EQ(std::memcmp(own.raw(), wanted.raw(), static_cast<size_t>(own.bytes())), 0) << name;
          }
        }
        const Learnt found = learn(ranked);
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < found.losses.size(); ++i) {
          EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << i;
          EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-4 * expected.norms[i]) << i;
        }
      });
    }
  }
}

TEST(NarrowBases, IsRefusedWhereMatricesComeAndGo) {
  const TemporaryDirectory out;
  save(out / "model");
  std::mutex mutex;
  collectives::launch("threads", {.ranks = 2}, [&](Group& ranks) {
    const std::string error =
        error_of([&] { Ranked(ranks, {.shard = 2, .shard_level = 3}, FrozenFormat::kNf4, out / "model"); });
    const std::lock_guard lock(mutex);
    EXPECT_NE(error.find("is kept in nf4, of which parallel.shard_level 3 cannot keep parts"),
              std::string::npos)
        << error;
  });
}

}  // namespace
}  // namespace temper::recipes
