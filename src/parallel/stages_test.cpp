// Stages of which each holds some of the parameters, and nothing of the others: they are initialized, loaded,
// copied, saved, continued and counted as one.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/placed_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "layers/adapter.h"
#include "optimizers/adamw.h"
#include "parallel/mesh_groups.h"
#include "parallel/replicas.h"
#include "parallel/weight_copy.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::parallel {
namespace {

using collectives::Group;
using layers::ParameterStore;

constexpr int kStages = 2;

// The first layer with the embedding, and the second one with what is in no layer behind it.
Stages stages_of(const WeightTable& table) {
  Stages stages{kStages};
  for (const WeightSpec& spec : table.specs())
    stages.of.push_back(spec.layer ? static_cast<int>(*spec.layer) : spec.name.starts_with("embed") ? 0 : 1);
  return stages;
}

const std::vector<Mesh> kMeshes{{}, {.tensor = 2}, {.shard = 2, .shard_level = 3}, {.expert = 2}};

class StagedModel : public testing::TestWithParam<size_t> {
 protected:
  StagedModel() : model_(tiny_model({.type = "qwen3_moe"})) {}

  WeightTable table() const { return layers::decoder_weight_table(model_->decoder.config()); }
  const Mesh& mesh() const { return kMeshes[GetParam()]; }
  ParameterStore store(int rank, std::optional<primitives::FrozenFormat> frozen = {}) const {
    return {table(), DType::kF32, {}, frozen, mesh(), rank, stages_of(table())};
  }
  int ranks() const { return kStages * mesh().size(); }
  void on_all(const std::function<void(Group&)>& body) const {
    collectives::launch("threads", {.ranks = ranks(), .deadline = 60}, body);
  }

  std::unique_ptr<models::Model> model_;
};

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().raw(), b.contiguous().raw(), static_cast<size_t>(a.bytes())) == 0;
}

// Of every parameter the rank's part of what one rank has, or nothing.
void expect_parts(const ParameterStore& found, const ParameterStore& whole) {
  for (size_t i = 0; i < whole.size(); ++i) {
    const Placement& placement = found.layout()[i];
    const Tensor expected = Tensor::empty(placement.own(), found.own(i).dtype());
    placement.take_own(whole.own(i), expected);
    EXPECT_TRUE(equal(found.own(i), expected)) << found.spec(i).name;
    EXPECT_EQ(placement.is_here(), found.own(i).numel() > 0) << found.spec(i).name;
  }
}

TEST_P(StagedModel, HoldsEachParameterOnOneStage) {
  const Stages stages = stages_of(table());
  const ParameterStore whole(table(), DType::kF32, {});
  int64_t elements = 0, on_one_rank = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    const ParameterStore part = store(rank);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Placement& placement = part.layout()[i];
      EXPECT_EQ(placement.is_here(), stages.of[i] == rank / mesh().size());
      EXPECT_EQ(placement.whole(), whole.layout()[i].own());
      EXPECT_EQ(placement.rank_of(0), stages.of[i] * mesh().size());
      if (placement.rank_of(placement.part()) == rank)
        for (const Slice& run : owned_runs(placement)) elements += run.count;
    }
    on_one_rank = std::max(on_one_rank, part.num_elements());
  }
  EXPECT_EQ(elements, whole.num_elements()) << "each element has one owner";
  EXPECT_LT(on_one_rank, whole.num_elements() * 7 / 10);
}

TEST_P(StagedModel, IsInitializedAndLoadedAsAWhole) {
  const TemporaryDirectory folder;
  models::save_model(*model_, folder / "model", "");
  const auto files = checkpoints::ModelFolder::open(folder / "model");
  using Format = primitives::FrozenFormat;
  for (const std::optional<Format> frozen : {std::optional<Format>(), {Format::kFloat8}, {Format::kNf4}}) {
    const auto load = [&](ParameterStore& to) {
      checkpoints::load_rows(
          files, to.table(), to.layout(),
          [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
            EXPECT_TRUE(to.layout()[to.index_of(spec.name)].is_here()) << "what is elsewhere is not read";
            to.set_rows(spec.name, first, rows);
          },
          [&](const WeightSpec& spec, int64_t first, const quant::Nf4& matrix) {
            return to.set_nf4(spec.name, first, matrix);
          });
    };
    ParameterStore whole(table(), DType::kF32, {}, frozen);
    for (int rank = 0; rank < ranks(); ++rank) {
      ParameterStore part = store(rank, frozen);
      whole.initialize(5, 0.1);
      part.initialize(5, 0.1);
      if (!frozen) expect_parts(part, whole);
      load(part);
      load(whole);
      if (!frozen) expect_parts(part, whole);
      // Codes have shapes of their own.
      for (size_t i = 0; i < whole.size(); ++i)
        EXPECT_EQ(part.own(i).numel() == 0, !part.layout()[i].is_here()) << part.spec(i).name;
    }
  }
}

// By the first rank, and by all of them.
TEST_P(StagedModel, IsGatheredAsAWhole) {
  ParameterStore whole(table(), DType::kF32, {});
  whole.initialize(5, 0.1);
  on_all([&](Group& all) {
    ParameterStore part = store(all.rank());
    part.initialize(5, 0.1);
    const std::vector<PlacedTensor> placed = part.placed();
    for (size_t i = 0; i < part.size(); ++i)
      EXPECT_TRUE(equal(checkpoints::whole_of(placed[i], all), whole.own(i))) << placed[i].name;
    checkpoints::with_whole(all, placed,
                            [&](const collectives::Root&, const std::function<Tensor(size_t)>& of) {
                              for (size_t i = 0; i < whole.size(); ++i)
                                EXPECT_TRUE(equal(of(i), whole.own(i))) << placed[i].name;
                            });
  });
}

// From stages to a mesh of all ranks, and back.
TEST_P(StagedModel, IsCopiedToOtherLayouts) {
  ParameterStore whole(table(), DType::kF32, {});
  whole.initialize(5, 0.1);
  for (const Mesh other :
       {Mesh{.replicate = ranks()}, Mesh{.tensor = ranks()}, Mesh{.shard = ranks(), .shard_level = 3}})
    on_all([&](Group& all) {
      ParameterStore staged = store(all.rank()), back = store(all.rank()),
                     divided(table(), DType::kF32, {}, {}, other, all.rank());
      staged.initialize(5, 0.1);
      divided.initialize(1, 1);
      back.initialize(2, 1);
      WeightCopy there(staged, divided, all), here(divided, back, all);
      there.run();
      there.check();
      expect_parts(divided, whole);
      here.run();
      here.check();
      expect_parts(back, whole);
    });
}

// What an update reads of the parameters that a rank holds.
void set_gradients(ParameterStore& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Placement placement = parameters.layout()[i].unsharded();
    if (!parameters[i].grad) continue;
    const Tensor whole = Tensor::empty(placement.whole(), DType::kF32),
                 own = Tensor::empty(placement.own(), DType::kF32);
    for (int64_t e = 0; e < whole.numel(); ++e)
      whole.data<float>()[e] = 0.01f * static_cast<float>((e * 7 + static_cast<int64_t>(i)) % 23 - 11);
    placement.take_own(whole, own);
    parameters[i].grad->add(own);
  }
}

// Its norm is that of the whole model, and a state that its ranks write is read by one rank and by them.
TEST(Stages, AreUpdatedAndContinuedAsOne) {
  const TemporaryDirectory folder;
  const auto model = tiny_model();
  const auto table = [&] { return layers::decoder_weight_table(model->decoder.config()); };
  const auto one_update = [&](ParameterStore& parameters, optimizers::AdamW& optimizer, Group& ranks) {
    set_gradients(parameters);
    optimizer.sum_gradients(ranks);
    const Tensor norm = optimizer.grad_norm();
    optimizer.step(0.1, norm, 0.5);
    return norm.data<float>()[0];
  };
  ParameterStore whole(table(), DType::kF32, {});
  whole.initialize(5, 0.1);
  optimizers::AdamW whole_optimizer(whole, model->decoder.ops(), {});
  const float expected = one_update(whole, whole_optimizer, collectives::alone());
  const auto states = [](const std::vector<PlacedTensor>& all) {
    std::map<std::string, Tensor> tensors;
    for (const PlacedTensor& each : all) tensors[each.name] = each.own;
    return tensors;
  };
  collectives::launch("threads", {.ranks = kStages, .deadline = 60}, [&](Group& all) {
    ParameterStore part(table(), DType::kF32, {}, {}, {}, all.rank(), stages_of(table()));
    part.initialize(5, 0.1);
    optimizers::AdamW optimizer(part, model->decoder.ops(), {}, {.stages = &all});
    EXPECT_EQ(one_update(part, optimizer, collectives::alone()), expected);
    expect_parts(part, whole);
    checkpoints::SharedState state(folder.path(), 1, checkpoints::owner_of_states(all));
    state.write([&](checkpoints::StateWriter& writer) {
      checkpoints::OwnedTensors(optimizer.state(), all.rank())
          .add_to(writer, "optimizer", all.rank(), all.size());
    });
    state.commit(all);
    // What other ranks hold is neither missed nor touched.
    const auto reader = checkpoints::StateReader::open(folder / checkpoints::state_name(1));
    ParameterStore again(table(), DType::kF32, {}, {}, {}, all.rank(), stages_of(table()));
    again.initialize(1, 1);
    optimizers::AdamW continued(again, model->decoder.ops(), {}, {.stages = &all});
    checkpoints::read_placed(reader, "optimizer", continued.state());
    const auto found = states(continued.state()), wanted = states(whole_optimizer.state());
    EXPECT_LT(found.size(), wanted.size());
    for (const auto& [name, tensor] : found) EXPECT_TRUE(equal(tensor, wanted.at(name))) << name;
  });
  ParameterStore alone(table(), DType::kF32, {});
  optimizers::AdamW optimizer(alone, model->decoder.ops(), {});
  checkpoints::read_placed(checkpoints::StateReader::open(folder / checkpoints::state_name(1)), "optimizer",
                           optimizer.state());
  const auto found = states(optimizer.state());
  for (const auto& [name, tensor] : states(whole_optimizer.state()))
    EXPECT_TRUE(equal(found.at(name), tensor)) << name;
}

// Of replicas of a stage one bit is another; other stages hold other parameters.
TEST(Stages, HaveReplicasOfTheirOwn) {
  const auto model = tiny_model();
  const WeightTable table = layers::decoder_weight_table(model->decoder.config());
  for (const bool changed : {false, true}) {
    collectives::launch("threads", {.ranks = 2 * kStages, .deadline = 60}, [&](Group& all) {
      ParameterStore part(table, DType::kF32, {}, {}, {.replicate = 2}, all.rank(), stages_of(table));
      part.initialize(5, 0.1);
      const size_t last = part.size() - 1;
      if (changed && all.rank() == 3) part.own(last).data<float>()[0] += 1;
      const std::string error = error_of([&] { check_replicas(all, part.placed(), 1); }, ErrorKind::kDefect);
      EXPECT_EQ(error.empty(), !changed) << error;
      if (!changed) return;
      expect_has(error, "ranks 2 and 3 hold other bits of");
      if (part.layout()[last].is_here()) expect_has(error, part.spec(last).name);
    });
  }
}

// Its matrices are where the weights are that they update.
TEST(Stages, DivideAdaptersLikeTheModel) {
  const auto model = tiny_model();
  const WeightTable table = layers::decoder_weight_table(model->decoder.config());
  const LoraConfig config{.rank = 4, .modules_to_save = {"model.norm"}};
  const LoraPlan plan = plan_lora(table, config, "adapters");
  ParameterStore whole(table, DType::kF32, {});
  whole.initialize(5, 0.1);
  layers::Adapter expected(plan, config, whole);
  expected.initialize(whole, 3);
  int64_t elements = 0;
  for (int rank = 0; rank < kStages; ++rank) {
    ParameterStore part(table, DType::kF32, {}, {}, {}, rank, stages_of(table));
    part.initialize(5, 0.1);
    layers::Adapter adapter(plan, config, part);
    adapter.initialize(part, 3);
    expect_parts(adapter.parameters(), expected.parameters());
    EXPECT_LT(adapter.parameters().num_elements(), expected.parameters().num_elements());
    elements += adapter.parameters().num_elements();
  }
  EXPECT_EQ(elements, expected.parameters().num_elements());
}

INSTANTIATE_TEST_SUITE_P(Meshes, StagedModel, testing::Range(size_t{0}, kMeshes.size()),
                         [](const auto& info) {
                           std::string name = to_string(kMeshes[info.param]);
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace temper::parallel
