// Decoders that get rows in place of embeddings, at positions of pictures.
#include <gtest/gtest.h>

#include "data/rows/media_positions.h"
#include "tests/support/errors.h"
#include "tests/support/paged_text.h"
#include "tests/support/relative_error.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using layers::DecoderInput;
using Floats = std::vector<float>;

constexpr int32_t kPad = 47;
constexpr int64_t kHidden = 32;

std::unique_ptr<Model> model_of(bool eager = true) {
  TinyModel options{.type = "qwen3_vl_text"};
  if (!eager) options.ops = {};
  options.sizes = {{"rope_parameters", Json::Object{{"rope_type", "default"},
                                                    {"rope_theta", 100.0},
                                                    {"mrope_section", Json::Array{2, 1, 1}},
                                                    {"mrope_interleaved", true}}}};
  auto model = tiny_model(options);
  model->decoder.parameters().enable_gradients(DType::kF32);
  return model;
}

// A picture of 2 x 3 tokens between text, then text alone.
const std::vector<int32_t> kIds{3, 1, kPad, kPad, kPad, kPad, kPad, kPad, 4, 5, 9, 2, 6}, kLengths{10, 3};

Tensor positions() {
  std::vector<data::TokenKind> kinds;
  for (const int32_t id : kIds)
    kinds.push_back(id == kPad ? data::TokenKind::kPicture : data::TokenKind::kText);
  const std::vector<data::MediaGrid> pictures{{1, 4, 6}};
  return data::media_positions({kinds, kLengths, pictures, {}}, {}).positions;
}

Tensor some_rows(int64_t count, float begin) {
  const Tensor rows = Tensor::empty({count, kHidden}, DType::kF32);
  for (int64_t i = 0; i < rows.numel(); ++i)
    rows.data<float>()[i] = begin + static_cast<float>(i * 7 % 23) / 23.f - 0.5f;
  return rows;
}

Floats floats(const Tensor& tensor) {
  const Tensor compact = tensor.contiguous();
  const auto values = compact.values<float>();
  return {values.begin(), values.end()};
}

// The hidden states, and gradients of their sum with unlike factors.
struct Outcome {
  Floats hidden, embedding, rows, after;
};
struct Options {
  bool checkpoint = false;
  size_t after_layers = 0;
  float change = 0;  // of the last row added behind layer 0
};
Outcome run(const Model& model, const DecoderInput& given, const Tensor& rows, const Options& options = {}) {
  auto& parameters = const_cast<Model&>(model).decoder.parameters();
  parameters.reset_gradients();
  Tape tape;
  DecoderInput input = given;
  Var after;
  if (rows.defined()) {
    input.placed.tokens = {{2, 6}};
    input.placed.rows = tape.variable(rows);
    for (size_t i = 0; i < options.after_layers; ++i) {
      const Tensor own = some_rows(6, 0.1f * static_cast<float>(i));
      if (i == 0) own.data<float>()[6 * kHidden - 1] += options.change;
      input.placed.after_layers.push_back(tape.variable(own));
    }
  }
  const Var hidden = model.decoder.forward(tape, input, {.checkpoint_layers = options.checkpoint});
  const Tensor slopes = some_rows(hidden.shape()[0], 0);
  tape.backward(hidden, slopes);
  Outcome found{floats(hidden.value), floats(parameters.at("embedding.weight").grad->grad()), {}, {}};
  if (rows.defined()) found.rows = floats(input.placed.rows.slot->grad());
  if (options.after_layers > 0) found.after = floats(input.placed.after_layers[0].slot->grad());
  return found;
}

Floats rows_of(const Floats& all, int64_t first, int64_t count) {
  return {all.begin() + first * kHidden, all.begin() + (first + count) * kHidden};
}

// Rows that are embeddings of other ids give the bits of these ids, forward and backward; nothing reaches the
// embedding that they replace.
TEST(MediaRows, StandInPlaceOfEmbeddings) {
  for (const bool eager : {true, false}) {
    const auto model = model_of(eager);
    const Tensor table = model->decoder.parameters().at("embedding.weight").value;
    std::vector<int32_t> others = kIds;
    const Tensor rows = Tensor::empty({6, kHidden}, DType::kF32);
    for (int32_t i = 0; i < 6; ++i) {
      others[static_cast<size_t>(2 + i)] = 20 + i;
      rows.narrow(0, i, 1).copy_from(table.narrow(0, 20 + i, 1));
    }
    const Outcome expected = run(*model, layers::make_input(others, kLengths, {}, positions()), {});
    const Outcome found = run(*model, layers::make_input(kIds, kLengths, {}, positions()), rows);
    EXPECT_EQ(found.hidden, expected.hidden);
    EXPECT_EQ(found.rows, rows_of(expected.embedding, 20, 6));
    EXPECT_EQ(rows_of(found.embedding, kPad, 1), Floats(kHidden, 0.f));
    EXPECT_NE(rows_of(found.embedding, 4, 1), Floats(kHidden, 0.f));
  }
}

TEST(MediaRows, ThreePositionsDecide) {
  const auto model = model_of();
  const Tensor rows = some_rows(6, 0);
  const Outcome placed = run(*model, layers::make_input(kIds, kLengths, {}, positions()), rows),
                plain = run(*model, layers::make_input(kIds, kLengths), rows);
  EXPECT_NE(placed.hidden, plain.hidden);
  // The document of text alone has the bits that it has without any picture near it.
  EXPECT_EQ(rows_of(placed.hidden, 10, 3), rows_of(plain.hidden, 10, 3));
}

// A text that is given its positions three times has all bits of one that has one.
TEST(MediaRows, ThreeEqualPositionsChangeNoBit) {
  for (const bool eager : {true, false}) {
    const auto model = model_of(eager);
    const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6}, lengths{5, 3};
    const std::vector<data::TokenKind> text(ids.size(), data::TokenKind::kText);
    const Outcome one = run(*model, layers::make_input(ids, lengths), {}),
                  three =
                      run(*model,
                          layers::make_input(ids, lengths, {},
                                             data::media_positions({text, lengths, {}, {}}, {}).positions),
                          {});
    EXPECT_EQ(three.hidden, one.hidden);
    EXPECT_EQ(three.embedding, one.embedding);
  }
}

TEST(MediaRows, AreAddedBehindLayers) {
  for (const bool eager : {true, false}) {
    const auto model = model_of(eager);
    const DecoderInput input = layers::make_input(kIds, kLengths, {}, positions());
    const Tensor rows = some_rows(6, 0);
    const Outcome none = run(*model, input, rows), one = run(*model, input, rows, {.after_layers = 1}),
                  two = run(*model, input, rows, {.after_layers = 2});
    EXPECT_NE(rows_of(one.hidden, 8, 2), rows_of(none.hidden, 8, 2));  // behind the picture
    EXPECT_NE(rows_of(one.hidden, 2, 6), rows_of(none.hidden, 2, 6));
    EXPECT_EQ(rows_of(one.hidden, 0, 2), rows_of(none.hidden, 0, 2));    // before it
    EXPECT_EQ(rows_of(one.hidden, 10, 3), rows_of(none.hidden, 10, 3));  // another document
    // Behind the last layer only the picture's own tokens move.
    EXPECT_NE(rows_of(two.hidden, 2, 6), rows_of(one.hidden, 2, 6));
    EXPECT_EQ(rows_of(two.hidden, 8, 2), rows_of(one.hidden, 8, 2));
    for (const size_t layers : {1, 2}) {
      const Outcome kept = run(*model, input, rows, {.after_layers = layers}),
                    again = run(*model, input, rows, {.checkpoint = true, .after_layers = layers});
      EXPECT_EQ(again.hidden, kept.hidden);
      EXPECT_EQ(again.embedding, kept.embedding);
      EXPECT_EQ(again.rows, kept.rows);
      EXPECT_EQ(again.after, kept.after);
    }
  }
}

// Central differences of the sum that run() differentiates, at the last row added behind layer 0.
TEST(MediaRows, GradientsOfAddedRows) {
  const auto model = model_of();
  const DecoderInput input = layers::make_input(kIds, kLengths, {}, positions());
  const Tensor rows = some_rows(6, 0), slopes = some_rows(std::ssize(kIds), 0);
  const auto sum = [&](float change) {
    const Outcome at = run(*model, input, rows, {.after_layers = 1, .change = change});
    double all = 0;
    for (size_t i = 0; i < at.hidden.size(); ++i) all += double{at.hidden[i]} * slopes.data<float>()[i];
    return all;
  };
  const double expected = (sum(0.01f) - sum(-0.01f)) / 0.02;
  const Outcome found = run(*model, input, rows, {.after_layers = 1});
  EXPECT_NEAR(found.after.back(), expected, 2e-3 * std::abs(expected) + 2e-4);
  EXPECT_GT(std::abs(expected), 1e-2);
}

// A prompt with a picture in parts of any size, then text token by token: as one pass over all of it.
TEST(MediaRows, DecodeBehindAPicture) {
  const auto model = model_of();
  const std::vector<int32_t> lengths{13};
  std::vector<data::TokenKind> kinds;
  for (const int32_t id : kIds)
    kinds.push_back(id == kPad ? data::TokenKind::kPicture : data::TokenKind::kText);
  const std::vector<data::MediaGrid> pictures{{1, 4, 6}};
  const auto of = [&](size_t tokens) {
    const std::vector<int32_t> length{static_cast<int32_t>(tokens)};
    return data::media_positions({std::span(kinds).first(tokens), length, pictures, {}}, {});
  };
  const Tensor rows = some_rows(6, 0), added = some_rows(6, 0.1f), all = of(13).positions;
  Tape tape(false);
  DecoderInput whole = layers::make_input(kIds, lengths, {}, all);
  whole.placed = {{{2, 6}}, tape.constant(rows), {tape.constant(added)}};
  const Tensor expected = model->decoder.forward(tape, whole).value;
  const size_t prompt = 10;
  for (const size_t part : {1, 3, 4, 7, 10}) {
    PagedText text(model->decoder);
    const auto compare = [&](const Var& found, int64_t first) {
      EXPECT_LE(relative_error(found.value, expected.narrow(0, first, found.shape()[0])), 2e-5)
          << "parts of " << part << ", token " << first;
    };
    for (size_t first = 0; first < prompt; first += part) {
      const auto count = std::min(part, prompt - first);
      const auto begin = static_cast<int64_t>(first), tokens = static_cast<int64_t>(count);
      compare(text.prompt(tape, std::span(kIds).subspan(first, count),
                          [&](layers::BatchInput& input) {
                            input.media_positions = all.narrow(1, begin, tokens).contiguous();
                            const int64_t from = std::max<int64_t>(begin, 2),
                                          to = std::min<int64_t>(begin + tokens, 8);
                            if (from >= to) return;
                            const auto own = [&](const Tensor& of_all) {
                              return tape.constant(of_all.narrow(0, from - 2, to - from));
                            };
                            input.placed = {{{from - begin, to - from}}, own(rows), {own(added)}};
                          }),
              begin);
    }
    const int32_t next = of(prompt).decoding_next.front();
    EXPECT_EQ(next, 7);
    for (size_t at = prompt; at < kIds.size(); ++at)
      compare(text.decode(tape, kIds[at],
                          [&](layers::BatchInput& input) {
                            input.shifts =
                                Tensor::from(std::vector<int32_t>{next - static_cast<int32_t>(prompt)});
                          }),
              static_cast<int64_t>(at));
  }
  PagedText text(model->decoder);
  EXPECT_EQ(error_of([&] {
              text.prompt(tape, kIds, [](layers::BatchInput& input) {
                input.shifts = Tensor::from(std::vector<int32_t>{-1});
              });
            }),
            "sequence 0 holds 0 tokens, but its positions are shifted by -1");
}

TEST(MediaRows, ContradictionsAreRefused) {
  const auto model = model_of();
  const auto error = [&](const Model& of, const std::function<void(Tape&, DecoderInput&)>& change) {
    return error_of([&] {
      Tape tape(false);
      DecoderInput input = layers::make_input(kIds, kLengths, {}, positions());
      change(tape, input);
      of.decoder.forward(tape, input);
    });
  };
  EXPECT_EQ(error(*model, [](Tape&, DecoderInput&) {}), "");
  const auto plain = tiny_model();
  EXPECT_EQ(error(*plain, [](Tape&, DecoderInput&) {}),
            "tokens have three positions (time, height, width), but the model's rotary takes one: its "
            "config.json has no mrope_section");
  EXPECT_EQ(
      error(*model, [](Tape&, DecoderInput& input) { input.positions = input.positions.narrow(0, 0, 3); }),
      "positions is [3, 13], needs 1 row, or 4: places, times, heights and widths");
  EXPECT_EQ(error(*model, [](Tape&, DecoderInput& input) { input.positions.data<int32_t>()[13 + 4] = -1; }),
            "token 4 has a time, height or width of -1, needs 0 or more");
  EXPECT_EQ(error(*model, [](Tape&, DecoderInput& input) { input.positions.data<int32_t>()[2 * 13] = 64; }),
            "65 positions are asked for; the model's max_position_embeddings is 64");
  EXPECT_EQ(error(*model,
                  [](Tape& tape, DecoderInput& input) {
                    input.placed = {{{2, 6}}, tape.constant(some_rows(5, 0))};
                  }),
            "rows in place of embeddings are float32 [5, 32], needs float32 [6, 32] for the tokens that they "
            "are given for");
  EXPECT_EQ(
      error(*model,
            [](Tape& tape, DecoderInput& input) {
              const Var rows = tape.constant(some_rows(6, 0));
              input.placed = {{{2, 6}}, rows, {rows, rows, rows}};
            }),
      "rows are added behind the first 3 layers, and the model has 2: give it the rows of its own tower");
  EXPECT_EQ(error_of([] {
              layers::make_input(kIds, kLengths, {}, Tensor::zeros({3, 4}, DType::kI32));
            }),
            "positions of pictures are [3, 4], needs [3, 13]");
}

// A picture takes fewer positions than tokens: those count, not the tokens' places.
TEST(MediaRows, APictureMayBeLongerThanTheContext) {
  const auto model = model_of();
  std::vector<int32_t> ids(100, kPad);
  ids.back() = 3;
  const std::vector<int32_t> lengths{100};
  std::vector<data::TokenKind> kinds(100, data::TokenKind::kPicture);
  kinds.back() = data::TokenKind::kText;
  const std::vector<data::MediaGrid> pictures{{1, 18, 22}};
  const Tensor at = data::media_positions({kinds, lengths, pictures, {}}, {}).positions;
  Tape tape(false);
  EXPECT_EQ(model->decoder.forward(tape, layers::make_input(ids, lengths, {}, at)).shape()[0], 100);
}

}  // namespace
}  // namespace temper::models
