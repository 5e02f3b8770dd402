// The text's decoder with rows that a tower made, at positions of pictures and videos: recorded cases of
// transformers (tools/oracles/take_placed_rows.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "data/rows/media_positions.h"
#include "primitives/primitives.h"
#include "tests/parity/picture_case.h"
#include "tests/support/relative_error.h"

namespace temper::parity {
namespace {

constexpr std::array kRules{"v5_17", "qwen", "v4_57", "v5_24"};
constexpr size_t kRows = 4;

class PlacedRowsParity : public PictureCase {
 protected:
  PlacedRowsParity()
      : PictureCase(TEMPER_SOURCE_DIR "/tests/goldens/placed_rows/" + std::get<0>(GetParam()) +
                    ".safetensors") {}

  // What a rule gives, or 5.17's where the file has no other.
  Tensor by_rule(size_t i, const std::string& what, const std::string& rule) const {
    const std::string own = row(i, what) + "." + rule;
    return golden_.tensor(has(own) ? own : row(i, what));
  }

  data::MediaPositionRules rules(const std::string& rule) const {
    return {.video = data::video_rule(rule),
            .tokens_per_second = family() == "qwen2_5_vl" ? 2.0 : 0.0,
            .frames_apart = family().starts_with("qwen3")};
  }
  std::vector<data::MediaGrid> grids(size_t i, const char* what) const {
    std::vector<data::MediaGrid> found;
    if (!has(row(i, what))) return found;
    const std::vector<int32_t> sizes = of_row(i, what);
    for (size_t at = 0; at < sizes.size(); at += 3)
      found.push_back({sizes[at], sizes[at + 1], sizes[at + 2]});
    if (std::string_view(what) == "video_grid_thw" && has(row(i, "second_per_grid_ts")))
      for (size_t at = 0; at < found.size(); ++at)
        found[at].seconds_per_frame = golden_.tensor(row(i, "second_per_grid_ts")).data<float>()[at];
    return found;
  }

  // Of these rows as documents of one.
  struct Documents {
    std::vector<int32_t> ids, lengths;
    std::vector<data::TokenKind> kinds;
    std::vector<data::MediaGrid> pictures, videos;
    data::MediaPositions positions(const data::MediaPositionRules& rules) const {
      return data::media_positions({kinds, lengths, pictures, videos}, rules);
    }
  };
  Documents documents(const std::vector<size_t>& rows) const {
    Documents all;
    for (const size_t i : rows) {
      const std::vector<int32_t> ids = of_row(i, "input_ids");
      all.ids.insert(all.ids.end(), ids.begin(), ids.end());
      all.lengths.push_back(static_cast<int32_t>(ids.size()));
      for (const int32_t kind : of_row(i, "mm_token_type_ids"))
        all.kinds.push_back(static_cast<data::TokenKind>(kind));
      for (const data::MediaGrid& grid : grids(i, "image_grid_thw")) all.pictures.push_back(grid);
      for (const data::MediaGrid& grid : grids(i, "video_grid_thw")) all.videos.push_back(grid);
    }
    return all;
  }

  // The rows that the tower made of several rows.
  Var placed(Tape& tape, const std::vector<size_t>& rows, const std::string& what) const {
    std::vector<Var> parts;
    for (const size_t i : rows)
      if (has(row(i, what))) parts.push_back(tape.variable(golden_.tensor(row(i, what)).clone()));
    return parts.empty() ? Var{} : primitives::concat_first(tape, parts);
  }
  layers::DecoderInput input(Tape& tape, const std::vector<size_t>& rows, const std::string& rule) const {
    const Documents all = documents(rows);
    layers::DecoderInput input =
        layers::make_input(all.ids, all.lengths, {}, all.positions(rules(rule)).positions);
    for (int64_t at = 0; at < std::ssize(all.kinds); ++at) {
      if (all.kinds[static_cast<size_t>(at)] == data::TokenKind::kText) continue;
      auto& ranges = input.placed.tokens;
      if (!ranges.empty() && ranges.back().first + ranges.back().count == at)
        ++ranges.back().count;
      else
        ranges.push_back({at, 1});
    }
    input.placed.rows = placed(tape, rows, "placed");
    for (int k = 0; has(row(rows.front(), fmt::format("after.{}", k))); ++k)
      input.placed.after_layers.push_back(placed(tape, rows, fmt::format("after.{}", k)));
    return input;
  }
};

TEST_P(PlacedRowsParity, Positions) {
  for (size_t i = 0; i < kRows; ++i)
    for (const char* rule : kRules) {
      const std::vector<int32_t> expected = ints(by_rule(i, "position_ids", rule));
      const data::MediaPositions found = documents({i}).positions(rules(rule));
      const auto values = found.positions.values<int32_t>();
      EXPECT_EQ(std::vector(values.begin(), values.end()), expected) << "row " << i << ", " << rule;
      EXPECT_EQ(found.decoding_next.front(), *std::max_element(expected.begin(), expected.end()) + 1);
      EXPECT_EQ(found.text_next.front(), expected.back() + 1);
    }
}

TEST_P(PlacedRowsParity, Logits) {
  const auto model = load();
  for (size_t i = 0; i < kRows; ++i)
    for (const char* rule : kRules) {
      Tape tape(false);
      const Var hidden = model->decoder.forward(tape, input(tape, {i}, rule));
      const Tensor all = model->decoder.logits(tape, hidden).value, expected = by_rule(i, "logits", rule);
      if (!has(row(i, "logits_at"))) {
        EXPECT_LE(relative_norm_error(all, expected), 2e-5) << "row " << i << ", " << rule;
        continue;
      }
      const std::vector<int32_t> places = of_row(i, "logits_at");
      const Tensor found = Tensor::empty(expected.shape(), DType::kF32);
      for (int64_t j = 0; j < std::ssize(places); ++j)
        found.narrow(0, j, 1).copy_from(all.narrow(0, places[static_cast<size_t>(j)], 1));
      EXPECT_LE(relative_norm_error(found, expected), 2e-5) << "row " << i << ", " << rule;
    }
}

// All rows packed into one: the loss over all their targets, and the text's gradients.
TEST_P(PlacedRowsParity, LossAndGradientsOfPackedRows) {
  const auto model = load();
  model->decoder.parameters().enable_gradients(DType::kF32);
  for (const bool checkpoints : {false, true}) {
    Tape tape;
    model->decoder.parameters().reset_gradients();
    const layers::DecoderInput all = input(tape, {0, 1, 2, 3}, "v5_17");
    std::vector<int32_t> targets;
    float count = 0;
    for (size_t i = 0; i < kRows; ++i) {
      std::vector<int32_t> own = of_row(i, "labels");
      std::rotate(own.begin(), own.begin() + 1, own.end());
      own.back() = ops::CrossEntropy::kIgnore;
      for (const int32_t target : own) count += target == ops::CrossEntropy::kIgnore ? 0.f : 1.f;
      targets.insert(targets.end(), own.begin(), own.end());
    }
    const Var hidden = model->decoder.forward(tape, all, {.checkpoint_layers = checkpoints});
    const Var loss =
        model->decoder.loss(tape, hidden, Tensor::from<int32_t>(targets), {.scale = 1 / count}).loss;
    const double expected = golden_.tensor("loss").data<float>()[0];
    EXPECT_NEAR(loss.value.data<float>()[0], expected, 5e-6 * expected);
    tape.backward(loss);
    const WeightTable& table = model->decoder.parameters().table();
    size_t compared = 0;
    for (size_t i = 0; i < table.specs().size(); ++i) {
      int64_t first = 0;
      for (const WeightSource& source : table.specs()[i].sources) {
        const std::string name = "grad." + table.name_in_files(source.name);
        const Tensor gradient = model->decoder.parameters()[i].grad->grad().narrow(0, first, source.rows);
        first += source.rows;
        if (!has(name)) continue;
        ++compared;
        EXPECT_LE(relative_error(gradient, golden_.tensor(name)), 1e-4) << name;
      }
    }
    EXPECT_GE(compared, 10u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PlacedRowsParity,
    testing::Combine(testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5"),
                     testing::Values("eager", "best")),
    [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param); });

}  // namespace
}  // namespace temper::parity
