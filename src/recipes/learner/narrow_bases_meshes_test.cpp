// Frozen bases in 4 bits on ranks that divide the model: codes are those of whole matrices, and adapters
// learn what they learn on one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "collectives/launch.h"
#include "models/adapter.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "tests/support/errors.h"
#include "tests/support/made_up_nf4.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/adapter_trainer.h"

namespace temper::recipes {
namespace {

using collectives::Group;
using primitives::FrozenFormat;

// Widths of which parts begin within blocks of 64, and experts and heads that four ranks divide.
Json narrow_mixture() {
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

struct RankedBase {
  RankedBase(Group& ranks, const Mesh& mesh, FrozenFormat format, const std::string& folder)
      : groups(ranks, mesh) {
    models::BuildOptions build = plain();
    build.base_dtype = format;
    build.ranks = groups.model();
    model = models::load_model(folder, build);
  }
  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
};

// What the frozen matrices mean, by their names.
using Matrices = std::map<std::string, Tensor>;
// Those that come and go are gathered, which all ranks do at the same time.
Matrices matrices_of(RankedBase& ranked) {
  layers::ParameterStore& parameters = ranked.model->decoder.parameters();
  const layers::ModelRanks& ranks = ranked.model->decoder.ranks();
  Matrices all;
  for (const WeightSpec& spec : parameters.table().specs()) {
    if (!spec.quantize) continue;
    const size_t index = parameters.index_of(spec.name);
    const bool gathers = parameters[index].gathered_on_use;
    if (gathers) {
      const Tensor value = parameters.make_value(index);
      EXPECT_EQ(value.dtype(), DType::kU8) << spec.name;
      (parameters.layout()[index].is_by_expert() ? ranks.expert_shard : ranks.shard)
          ->all_gather_into(spec.name, parameters.own(index), value.reshape({value.numel()}));
    }
    all[spec.name] = parameters.value(spec.name);
    if (gathers) parameters.drop_value(index);
  }
  return all;
}

// A folder of a model in float32.
void save(const std::string& folder, const Json& config = narrow_mixture()) {
  const auto model = models::build_model(config, "tiny", plain());
  model->decoder.parameters().initialize(3, 0.1);
  models::save_model(*model, folder, "");
}

// The same model as bitsandbytes' folders have it, with codes that no rounding gives.
void save_codes(const std::string& folder, bool nested) {
  const auto model = models::build_model(narrow_mixture(), "tiny", plain());
  model->decoder.parameters().initialize(3, 0.1);
  save_made_up_nf4(*model, folder, nested, 64);
}

struct Learned {
  std::vector<double> losses, norms;
  std::vector<PlacedTensor> gradients;  // of the adapter's parameters in the first update
  std::vector<std::unique_ptr<Placement>> placements;
};

Learned learn_from_base(RankedBase& ranked,
                        const std::vector<std::string>& targets = {"q_proj", "k_proj", "v_proj", "o_proj"}) {
  const auto adapter = models::new_adapter(*ranked.model, {.rank = 4, .targets = {.names = targets}}, 1, "");
  optimizers::AdamW optimizer(adapter->parameters(), ranked.model->decoder.ops(), {},
                              ranked.groups.sharing());
  training::AdapterTrainer trainer(ranked.model->decoder, {}, ranked.groups.update());
  std::vector<data::PackedRow> rows;
  const Group& data = ranked.groups.rows();
  for (uint32_t row = 0; row < 4; ++row)
    if (static_cast<int>(row) * data.size() / 4 == data.rank()) rows.push_back(test_row(row, {7, 5}));
  Learned learned;
  for (int step = 0; step < 3; ++step) {
    const training::StepResult result =
        trainer.begin({{.adapter = adapter.get(), .optimizer = &optimizer, .rows = &rows, .lr = 1e-2}})[0]
            .wait();
    learned.losses.push_back(result.loss);
    learned.norms.push_back(result.grad_norm);
    if (step > 0) continue;
    learned.gradients = optimizer.summed_gradients();
    for (PlacedTensor& tensor : learned.gradients) {
      tensor.own = tensor.own.to(DType::kF32).clone();
      learned.placements.push_back(std::make_unique<Placement>(*tensor.placement));
      tensor.placement = learned.placements.back().get();
    }
  }
  return learned;
}

// Element by element of what this rank holds; relative to the largest of a tensor.
void expect_gradients(const Learned& found, const Learned& expected) {
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  double all = 0;
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const PlacedTensor &tensor = found.gradients[i], &whole = expected.gradients[i];
    ASSERT_EQ(tensor.name, whole.name);
    const Tensor own = tensor.own.contiguous(), one = whole.own.contiguous();
    double largest = 0, worst = 0;
    for (const float value : one.values<float>()) largest = std::max(largest, std::fabs(double{value}));
    int64_t compared = 0;
    for (const Slice& run : tensor.placement->runs(tensor.placement->part()))
      for (int64_t e = 0; e < run.count; ++e, ++compared)
        worst = std::max(worst, std::fabs(double{own.data<float>()[run.own + e]} -
                                          double{one.data<float>()[run.whole + e]}));
    EXPECT_GT(compared, 0) << tensor.name;
    EXPECT_LE(worst, 1e-4 * largest) << tensor.name;
    all += largest;
  }
  EXPECT_GT(all, 0);
}

void expect_learned(const Learned& found, const Learned& expected) {
  for (size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << i;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-4 * expected.norms[i]) << i;
  }
  expect_gradients(found, expected);
}

void expect_same_on_ranks(const std::string& folder) {
  for (const FrozenFormat format : {FrozenFormat::kNf4, FrozenFormat::kNf4Double}) {
    SCOPED_TRACE(format == FrozenFormat::kNf4 ? "nf4" : "nf4_double");
    Matrices whole;
    Learned expected;
    collectives::launch("local", {}, [&](Group& alone) {
      RankedBase one(alone, {}, format, folder);
      whole = matrices_of(one);
      expected = learn_from_base(one);
    });
    ASSERT_GE(whole.size(), 6u);
    for (const Mesh& mesh :
         {Mesh{.tensor = 2}, Mesh{.tensor = 4}, Mesh{.expert = 4}, Mesh{.tensor = 2, .expert = 2},
          Mesh{.shard = 2, .tensor = 2, .shard_level = 2}, Mesh{.shard = 2, .shard_level = 3},
          Mesh{.shard = 4, .shard_level = 3}, Mesh{.shard = 2, .tensor = 2, .shard_level = 3},
          Mesh{.shard = 2, .expert = 2, .shard_level = 3}}) {
      SCOPED_TRACE(to_string(mesh));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        RankedBase ranked(ranks, mesh, format, folder);
        const layers::ParameterStore& parameters = ranked.model->decoder.parameters();
        const Matrices here = matrices_of(ranked);
        {
          const std::lock_guard lock(mutex);
          int flat = 0;
          for (const auto& [name, own] : here) {
            const size_t index = parameters.index_of(name);
            const Placement placement = parameters.layout()[index].unsharded();
            flat += parameters.layout()[index].is_flat() ? 1 : 0;
            if (parameters.layout()[index].is_flat()) {
              EXPECT_EQ(parameters.own(index).numel() * 2, parameters.layout()[index].own().numel()) << name;
            }
            const Tensor wanted = Tensor::empty(placement.own(), DType::kF32);
            placement.take_own(whole.at(name), wanted);
            ASSERT_EQ(own.shape(), wanted.shape()) << name;
            EXPECT_EQ(std::memcmp(own.raw(), wanted.raw(), static_cast<size_t>(own.bytes())), 0) << name;
          }
          EXPECT_EQ(flat > 0, mesh.shard_level == 3);
        }
        const Learned found = learn_from_base(ranked);
        const std::lock_guard lock(mutex);
        expect_learned(found, expected);
      });
    }
  }
}

TEST(NarrowBases, OnRanksHaveTheCodesOfOne) {
  const TemporaryDirectory out;
  save(out / "model");
  expect_same_on_ranks(out / "model");
}

// Each of them reads its heads' rows of the projection, and of what an adapter adds to it.
TEST(NarrowBases, ContextRanksReadRowsOfTheProjectionOfLatents) {
  const TemporaryDirectory out;
  save(out / "model", tiny_config("deepseek_v3"));
  const std::vector<std::string> targets{"kv_b_proj", "o_proj"};
  for (const FrozenFormat format : {FrozenFormat::kFloat8, FrozenFormat::kNf4}) {
    Learned expected;
    collectives::launch("local", {}, [&](Group& alone) {
      RankedBase one(alone, {}, format, out / "model");
      expected = learn_from_base(one, targets);
    });
    for (const Mesh& mesh : {Mesh{.context = 2, .context_method = ContextMethod::kHeads},
                             Mesh{.context = 2, .context_method = ContextMethod::kHeads, .shard_level = 3},
                             Mesh{.context = 4, .context_method = ContextMethod::kBoth}}) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(format), to_string(mesh)));
      std::mutex mutex;
      collectives::launch("threads", {.ranks = mesh.size(), .deadline = 120}, [&](Group& ranks) {
        RankedBase ranked(ranks, mesh, format, out / "model");
        const Learned found = learn_from_base(ranked, targets);
        const std::lock_guard lock(mutex);
        expect_learned(found, expected);
      });
    }
  }
}

// Codes of a file are divided as they are: their values, rounded again, would be others.
TEST(NarrowBases, RanksDivideTheCodesOfAFolder) {
  for (const bool nested : {false, true}) {
    SCOPED_TRACE(nested ? "with double quantization" : "single");
    const TemporaryDirectory out;
    save_codes(out / "model", nested);
    const auto plain_model = models::load_model(out / "model", plain());
    collectives::launch("local", {}, [&](Group& alone) {
      const FrozenFormat format = nested ? FrozenFormat::kNf4Double : FrozenFormat::kNf4;
      RankedBase kept(alone, {}, format, out / "model");
      for (const auto& [name, value] : matrices_of(kept)) {
        const Tensor read = plain_model->decoder.parameters().value(name);
        EXPECT_EQ(std::memcmp(value.raw(), read.raw(), static_cast<size_t>(read.bytes())), 0) << name;
      }
    });
    expect_same_on_ranks(out / "model");
  }
}

}  // namespace
}  // namespace temper::recipes
