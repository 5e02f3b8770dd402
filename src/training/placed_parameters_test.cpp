// Ranks that hold parts of a model: what they load, and states of the whole that any number of them
// continues.
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/placed_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "collectives/launch.h"
#include "layers/decoder.h"
#include "optimizers/adamw.h"
#include "tests/support/tiny_model.h"

namespace temper::training {
namespace {

using collectives::Group;
using layers::ParameterStore;

std::vector<float> floats_of(const Tensor& tensor) {
  const Tensor compact = tensor.contiguous().to(DType::kF32);
  return {compact.values<float>().begin(), compact.values<float>().end()};
}

// What rank `rank` of `ranks` holds of a parameter, said once more by the names in the files.
std::vector<float> expected_part(const WeightSpec& spec, const Tensor& whole, int ranks, int rank) {
  std::vector<float> all;
  int64_t first = 0;
  for (const WeightSource& source : spec.sources) {
    Tensor part = whole.narrow(0, first, source.rows);
    first += source.rows;
    const auto is = [&](std::string_view name) { return source.name.find(name) != std::string::npos; };
    const bool bias = source.name.ends_with(".bias");
    if (is("q_proj") || is("k_proj") || is("v_proj") || is("gate_proj") || is("up_proj") ||
        is("embed_tokens"))
      part = part.narrow(0, rank * source.rows / ranks, source.rows / ranks);
    else if ((is("o_proj") || is("down_proj")) && !bias)
      part = part.narrow(1, rank * whole.dim(1) / ranks, whole.dim(1) / ranks);
    const std::vector<float> values = floats_of(part);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void expect_part(const ParameterStore& found, const ParameterStore& whole, int ranks, int rank) {
  for (size_t i = 0; i < whole.size(); ++i)
    EXPECT_EQ(floats_of(found.value(found.spec(i).name)),
              expected_part(whole.spec(i), whole.value(whole.spec(i).name), ranks, rank))
        << whole.spec(i).name;
}

class PlacedParameters : public testing::TestWithParam<const char*> {
 protected:
  PlacedParameters() : model(tiny_model({.type = GetParam()})) { models::save_model(*model, path, ""); }
  WeightTable table() const { return layers::decoder_weight_table(model->decoder.config()); }
  ParameterStore store(int ranks, int rank, std::optional<primitives::FrozenFormat> frozen = {}) const {
    return {table(), DType::kF32, {}, frozen, Mesh{.tensor = ranks}, rank};
  }

  TemporaryDirectory folder;
  std::string path = folder / "model";
  std::unique_ptr<models::Model> model;
};

TEST_P(PlacedParameters, ARankLoadsItsPartAndReadsNothingElse) {
  using Frozen = std::optional<primitives::FrozenFormat>;
  for (const Frozen frozen : {Frozen(), Frozen(primitives::FrozenFormat::kFloat8)}) {
    ParameterStore whole(table(), DType::kF32, {}, frozen);
    const auto files = checkpoints::ModelFolder::open(path);
    const auto load = [&](ParameterStore& to) {
      int64_t rows_read = 0;
      checkpoints::load_rows(files, to.table(), to.layout(),
                             [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
                               to.set_rows(spec.name, first, rows);
                               if (spec.axes[0].name == "heads*head_dim") rows_read += rows.dim(0);
                             });
      return rows_read;
    };
    const int64_t all = load(whole);
    for (int rank = 0; rank < 2; ++rank) {
      ParameterStore part = store(2, rank, frozen);
      EXPECT_EQ(load(part), all / 2);
      expect_part(part, whole, 2, rank);
      EXPECT_LT(part.num_elements(), whole.num_elements() * 6 / 10);
    }
  }
}

// Random numbers belong to elements of the model, not to ranks.
TEST_P(PlacedParameters, ARankInitializesItsPart) {
  ParameterStore whole = store(1, 0);
  whole.initialize(5, 0.1);
  for (int rank = 0; rank < 2; ++rank) {
    ParameterStore part = store(2, rank);
    part.initialize(5, 0.1);
    expect_part(part, whole, 2, rank);
  }
}

// One update with gradients of which each rank has its part.
void update(ParameterStore& parameters, optimizers::AdamW& optimizer, int number) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Placement& placement = parameters.layout()[i];
    const Tensor whole = Tensor::zeros(placement.whole(), DType::kF32);
    for (int64_t e = 0; e < whole.numel(); ++e)
      whole.data<float>()[e] = 0.01f * static_cast<float>((e * 7 + number) % 23 - 11);
    const Tensor own = Tensor::zeros(placement.own(), DType::kF32);
    placement.take_own(whole, own);
    parameters[i].grad->add(own);
  }
  optimizer.step(1e-2);
}

// Saved by `before` ranks after two updates, continued by `after` ranks with one more.
void save_and_continue(const std::string& root, int before, int after, const layers::Decoder& decoder,
                       std::vector<std::vector<float>>& weights) {
  const auto table = [&] { return layers::decoder_weight_table(decoder.config()); };
  const auto with = [&](int ranks,
                        const std::function<void(ParameterStore&, optimizers::AdamW&, Group&)>& body) {
    collectives::launch("threads", {.ranks = ranks, .deadline = 60}, [&](Group& group) {
      ParameterStore parameters(table(), DType::kF32, {}, {}, Mesh{.tensor = ranks}, group.rank());
      parameters.initialize(3, 0.1);
      optimizers::AdamW optimizer(parameters, decoder.ops(), {});
      body(parameters, optimizer, group);
    });
  };
  with(before, [&](ParameterStore& parameters, optimizers::AdamW& optimizer, Group& ranks) {
    update(parameters, optimizer, 1);
    update(parameters, optimizer, 2);
    checkpoints::SharedState state(root, 2, checkpoints::owner_of_states(ranks));
    state.write([&](checkpoints::StateWriter& writer) {
      checkpoints::OwnedTensors(optimizer.state(), ranks.rank())
          .add_to(writer, "optimizer", ranks.rank(), ranks.size());
    });
    state.commit(ranks);
  });
  with(after, [&](ParameterStore& parameters, optimizers::AdamW& optimizer, Group& ranks) {
    parameters.initialize(4, 0.2);  // which the state replaces
    checkpoints::read_placed(*checkpoints::open_newest(root, ranks), "optimizer", optimizer.state());
    optimizer.restored(2);
    update(parameters, optimizer, 3);
    for (const PlacedTensor& tensor : optimizer.state()) {
      const std::vector<float> values = floats_of(checkpoints::whole_of(tensor, ranks));
      if (ranks.rank() == 0) weights.push_back(values);
    }
  });
}

TEST_P(PlacedParameters, AStateIsOfTheWholeAndContinuesOnAnyNumberOfRanks) {
  std::vector<std::vector<float>> expected;
  save_and_continue(folder / "1-1", 1, 1, model->decoder, expected);
  for (const auto& [before, after] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, then {}", before, after));
    const std::string root = folder / fmt::format("{}-{}", before, after);
    std::vector<std::vector<float>> found;
    save_and_continue(root, before, after, model->decoder, found);
    EXPECT_EQ(found, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlacedParameters, testing::Values("qwen2", "qwen3"));

}  // namespace
}  // namespace temper::training
