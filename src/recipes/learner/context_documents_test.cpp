// Where context ranks divide a row, a document sees itself alone, whatever the borders between the ranks.
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/launch.h"
#include "parallel/mesh_groups.h"
#include "tests/support/ranked_model.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::recipes {
namespace {

using collectives::Group;

constexpr int32_t kIdsOfEach = 16;  // documents share no id

data::PackedRow row_of(const std::vector<int64_t>& lengths) {
  data::PackedRow row;
  row.document_lengths = lengths;
  for (size_t d = 0; d < lengths.size(); ++d)
    for (int64_t i = 0; i < lengths[d]; ++i) {
      row.ids.push_back(kIdsOfEach * static_cast<int32_t>(d) + static_cast<int32_t>(i * i % 13));
      row.targets.push_back(data::kIgnore);
    }
  return row;
}

struct Seen {
  std::vector<std::vector<float>> hidden;    // of each token
  std::vector<std::vector<float>> gradient;  // by the embedding of each id
};

std::vector<std::vector<float>> rows_of(const Tensor& tensor) {
  std::vector<std::vector<float>> rows;
  const int64_t width = tensor.dim(1);
  for (int64_t i = 0; i < tensor.dim(0); ++i)
    rows.emplace_back(tensor.data<float>() + i * width, tensor.data<float>() + (i + 1) * width);
  return rows;
}

// Of Σ hidden · some weights: a document's part of it depends on its own tokens.
Seen see(const char* type, const data::PackedRow& row, const Mesh& mesh) {
  Seen seen;
  std::mutex mutex;
  collectives::launch("threads", {.ranks = mesh.size(), .deadline = 60}, [&](Group& ranks) {
    const parallel::MeshGroups groups(ranks, mesh);
    const auto model =
        ranked_model(groups, {.config = tiny_config(type), .ops = ops::all_eager(), .deviation = 0.3});
    layers::ParameterStore& parameters = model->decoder.parameters();
    parameters.enable_gradients(DType::kF32);
    const training::MicroBatch batch = training::gather({row}, 0, 1, training::form_of(model->decoder));
    Tape tape;
    const Var hidden = model->decoder.forward(tape, batch.input);
    const Tensor slopes = Tensor::empty(hidden.shape(), DType::kF32);
    for (int64_t i = 0; i < slopes.numel(); ++i)
      slopes.data<float>()[i] = static_cast<float>(i % slopes.dim(1)) / 32.f - 0.4f;
    tape.backward(hidden, slopes);
    const Tensor gradient = parameters.at("embedding.weight").grad->grad().clone();
    groups.data().all_reduce("gradients", gradient);
    const layers::TokenCut& cut = batch.input.cut;
    const Tensor all = Tensor::zeros({cut.tokens(), hidden.shape()[1]}, DType::kF32);
    const auto mine = hidden.value.values<float>();
    const auto parts = ranks.gather("hidden states", std::span<const float>(mine));
    for (int rank = 0; rank < ranks.size(); ++rank)
      cut.put(rank, Tensor::from(std::span<const float>(parts[static_cast<size_t>(rank)]), hidden.shape()),
              all);
    const std::lock_guard lock(mutex);
    seen = {rows_of(all), rows_of(gradient)};
  });
  return seen;
}

// A token of the second of three documents changes.
void expect_change_in_the_second(const char* type, const std::vector<int64_t>& lengths, int64_t token,
                                 const Mesh& mesh) {
  SCOPED_TRACE(fmt::format("{}, {}, after a document of {} tokens", type, to_string(mesh), lengths[0]));
  const auto changed = static_cast<size_t>(lengths[0] + token),
             end = static_cast<size_t>(lengths[0] + lengths[1]);
  data::PackedRow row = row_of(lengths);
  const Seen before = see(type, row, mesh);
  row.ids[changed] = kIdsOfEach + 14;
  const Seen after = see(type, row, mesh);
  for (size_t t = 0; t < row.ids.size(); ++t)
    EXPECT_EQ(before.hidden[t] == after.hidden[t], t < changed || t >= end) << t;
  const auto first = static_cast<size_t>(kIdsOfEach);
  for (size_t id = 0; id < 3 * first; ++id) {
    if (id >= first && id < 2 * first) continue;
    EXPECT_EQ(before.gradient[id], after.gradient[id]) << id;
  }
  EXPECT_NE(before.gradient[first], after.gradient[first]);
}

TEST(ContextDocuments, ATokenChangesItsDocumentAlone) {
  constexpr ContextMethod kKeys = ContextMethod::kKeys;
  for (const char* const type : {"qwen3", "qwen3_next", "deepseek_v3", "gpt_oss"})
    for (const Mesh& mesh :
         {Mesh{.context = 2}, Mesh{.context = 4}, Mesh{.context = 2, .context_method = kKeys},
          Mesh{.context = 4, .context_method = ContextMethod::kBoth}})
      expect_change_in_the_second(type, {37, 51, 40}, 20, mesh);
  expect_change_in_the_second("qwen3_next", {37, 51, 40}, 20,
                              {.context = 2, .context_method = ContextMethod::kHeads});
}

// The state of the second one goes through ranks, and through the pieces of a rank.
TEST(ContextDocuments, StatesOfDocumentsPassThroughRanks) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{20, 63, 45}, {31, 62, 35}, {31, 64, 33}, {1, 64, 63}})
    for (const Mesh& mesh : {Mesh{.context = 4}, Mesh{.context = 2, .context_method = ContextMethod::kKeys},
                             Mesh{.context = 4, .context_method = ContextMethod::kBoth}})
      expect_change_in_the_second("qwen3_next", lengths, 2, mesh);
}

}  // namespace
}  // namespace temper::recipes
