// Rows of pictures where ranks divide a model, or the tokens of a row: as on one rank.
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/launch.h"
#include "data/rows/media_positions.h"
#include "parallel/mesh_groups.h"
#include "tests/support/ranked_model.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::training {
namespace {

using collectives::Group;

constexpr int32_t kPad = 47;
constexpr int64_t kHidden = 32, kRows = 27;

// Text, a picture of 3 x 5 tokens, text, one of 2 x 6, text: over the borders of ranks.
data::PackedRow row() {
  data::PackedRow all;
  const auto put = [&](int32_t id, int count) {
    for (int i = 0; i < count; ++i) {
      all.ids.push_back(id == kPad ? id : (id + 5 * i) % 40);
      all.targets.push_back(data::kIgnore);
    }
  };
  for (const auto& [id, count] : {std::pair{3, 9}, {kPad, 15}, {7, 4}, {kPad, 12}, {1, 8}}) put(id, count);
  all.document_lengths = {48};
  return all;
}

Tensor some(int64_t rows, int64_t seed) {
  const Tensor all = Tensor::empty({rows, kHidden}, DType::kF32);
  for (int64_t i = 0; i < all.numel(); ++i)
    all.data<float>()[i] = static_cast<float>((i * 7 + seed) % 29) / 29.f - 0.5f;
  return all;
}

// Positions of the row, and those that it has anyway of the padding behind it.
Tensor positions_of(const Tensor& places) {
  std::vector<data::TokenKind> kinds;
  for (const int32_t id : row().ids)
    kinds.push_back(id == kPad ? data::TokenKind::kPicture : data::TokenKind::kText);
  const std::vector<int32_t> lengths{48};
  const std::vector<data::MediaGrid> pictures{{1, 6, 10}, {1, 4, 12}};
  const Tensor found = data::media_positions({kinds, lengths, pictures, {}}, {}).positions,
               all = Tensor::empty({4, places.dim(1)}, DType::kI32);
  for (int64_t i = 0; i < 4; ++i) {
    all.narrow(0, i, 1).copy_from(places.narrow(0, 0, 1));
    if (i > 0) all.narrow(0, i, 1).narrow(1, 0, 48).copy_from(found.narrow(0, i - 1, 1));
  }
  return all;
}

struct Seen {
  Tensor rows, added;  // gradients, [rows, hidden]
};

Seen see(const char* type, const Mesh& mesh, bool checkpoint) {
  Seen seen;
  std::mutex mutex;
  collectives::launch("threads", {.ranks = mesh.size(), .deadline = 60}, [&](Group& ranks) {
    const parallel::MeshGroups groups(ranks, mesh);
    Json config = tiny_config(type);
    config.set("head_dim", 16);
    config.set(
        "rope_parameters",
        Json::Object{{"rope_type", "default"},
                     {"partial_rotary_factor", std::string_view(type) == "qwen3_5_text" ? 0.5 : 1.0},
                     {"mrope_section", std::string_view(type) == "qwen3_5_text" ? Json::Array{2, 1, 1}
                                                                                : Json::Array{2, 3, 3}}});
    const auto model = ranked_model(groups, {.config = config, .ops = ops::all_eager(), .deviation = 0.3});
    model->decoder.parameters().enable_gradients(DType::kF32);
    MicroBatch batch = gather({row()}, 0, 1, form_of(model->decoder));
    batch.input.positions = positions_of(batch.input.positions);
    Tape tape;
    const Var rows = tape.variable(some(kRows, 0)), added = tape.variable(some(kRows, 5));
    batch.input.placed = {{{9, 15}, {28, 12}}, rows, {added}};
    const Var hidden = model->decoder.forward(tape, batch.input, {.checkpoint_layers = checkpoint});
    // Of several tensor ranks each gives a part of the gradient: here the first gives all of it.
    const Tensor slopes = some(batch.input.positions.dim(1), 3);
    if (!groups.model().is_first()) slopes.fill_zero();
    tape.backward(hidden, batch.input.cut.own_of(slopes));
    // Of ranks that divide the tokens each has a part of the gradient.
    const bool parts = mesh.sequence || mesh.tensor == 1;
    std::vector<Tensor> gradients;
    for (const Var* each : {&rows, &added}) {
      const Tensor own = each->slot->grad();
      gradients.push_back(own.defined() ? own.contiguous() : Tensor::zeros({kRows, kHidden}, DType::kF32));
      ranks.all_reduce("gradients", gradients.back());
      if (!parts)
        for (float& value : gradients.back().values<float>()) value /= static_cast<float>(mesh.tensor);
    }
    const std::lock_guard lock(mutex);
    seen = {gradients[0], gradients[1]};
  });
  return seen;
}

TEST(PlacedRowsOnRanks, HaveTheGradientsOfOneRank) {
  for (const char* const type : {"qwen3_vl_text", "qwen2_5_vl_text", "qwen3_5_text"}) {
    const Seen one = see(type, {}, false);
    for (const Mesh& mesh :
         {Mesh{.tensor = 2}, Mesh{.tensor = 2, .sequence = false}, Mesh{.context = 2},
          Mesh{.context = 2, .context_method = ContextMethod::kKeys}, Mesh{.context = 2, .tensor = 2}})
      for (const bool checkpoint : {false, true}) {
        if (std::string_view(type) == "qwen3_5_text" && mesh.context > 1 && mesh.tensor > 1) continue;
        SCOPED_TRACE(fmt::format("{}, {}, {}", type, to_string(mesh), checkpoint));
        const Seen several = see(type, mesh, checkpoint);
        EXPECT_LE(relative_error(several.rows, one.rows), 1e-5);
        EXPECT_LE(relative_error(several.added, one.added), 1e-5);
      }
  }
}

}  // namespace
}  // namespace temper::training
