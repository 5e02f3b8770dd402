#include "data/batches.h"

#include <gtest/gtest.h>

#include "data/sources/test_support.h"

namespace temper::data {
namespace {

class BatchMakerTest : public testing::Test {
 protected:
  BatchMakerTest() {
    options_.max_length = 12;
    options_.rows_per_step = 1;
    options_.num_epochs = 0;
    options_.on_bad_row = OnBadRow::kSkip;
    write({"1 2 3", "4 5 6 7", "8 9", "", "1 2 3 4 5", "6 7 8"});
  }

  // A text without a word is a row that is no row.
  void write(const std::vector<std::string>& texts) {
    std::vector<std::string> lines;
    for (const std::string& text : texts)
      lines.push_back(text.empty() ? R"({"wrong": 1})" : Json(Json::Object{{"text", text}}).dump());
    file_ = write_lines(folder_, "rows.jsonl", lines);
  }
  Mixture mixture(const RowOptions& options = {}) const { return mixture_of({file_}, options); }

  std::string refusal_of_state(const Json& state, const Mixture& rows, bool mended = false) const {
    BatchMaker maker(rows, options_);
    return message_of([&] { maker.restore(state, mended); });
  }

  TemporaryDirectory folder_;
  std::string file_;
  LoaderOptions options_;
};

TEST_F(BatchMakerTest, ABrokenStateIsNamed) {
  const Mixture rows = mixture();
  BatchMaker maker(rows, options_);
  maker.next();
  const Json good = maker.state();
  EXPECT_EQ(refusal_of_state(good, rows), "no error");
  const std::string broken = "[data] the saved state is broken: ",
                    not_kept =
                        " was kept before and is not now; resume with the same tokenizer, chat "
                        "template and options";
  for (const auto& [field, value, expected] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"counts", "[]", broken + "it counts 0 sources, there are 1"},
           {"open", "[[-1]]", broken + "row -1 of 6"},
           {"open", "[[6]]", broken + "row 6 of 6"},
           {"open", "[[[1, -1]]]", broken + "row 1 of 6"},
           {"open", "[[0], [[1, 1]]]", "[" + file_ + ":2]" + not_kept},
           {"closed", "[[3]]", "[" + file_ + ":4]" + not_kept},
           {"closed", "[[0, 1, 4]]",
            "[data] rows that were packed together have 21 tokens, max_length is 12; resume with the same "
            "tokenizer, chat template and options"},
           {"place", R"({"epoch": 0, "in_epoch": 1, "lanes": [{"given": 1, "passes": 0, "position": 6}]})",
            broken + R"(its place in the rows is {"epoch": 0, "in_epoch": 1, "lanes": [{"given": 1, )" +
                R"("passes": 0, "position": 6}]})"},
           {"data", R"({"rows": 6, "bytes": 1})", "[data] cannot resume with other data (bytes: 1 before, "},
           {"order", "{}",
            "[data] cannot resume with other settings (seed: absent before, 0 now); restore the setting, or "
            "start a new run"}}) {
    Json state = good;
    state.set(field, Json::parse(value, "state"));
    EXPECT_TRUE(refusal_of_state(state, rows).starts_with(expected)) << refusal_of_state(state, rows);
  }
  // Without packing a row may be as long as it is.
  options_.packing = Packing::kNone;
  options_.max_length = 0;
  Json state = BatchMaker(rows, options_).state();
  state.set("closed", Json::parse("[[0, 1, 4]]", "state"));
  EXPECT_EQ(refusal_of_state(state, rows), "no error");
}

TEST_F(BatchMakerTest, AFileThatIsMendedHasAsManyRows) {
  const Mixture before = mixture();
  BatchMaker maker(before, options_);
  maker.next();
  const Json state = maker.state();
  write({"1 2 3", "4 5 6 7", "8 9", "mended", "1 2 3 4 5", "6 7 8"});
  const Mixture mended = mixture();
  EXPECT_TRUE(refusal_of_state(state, mended).starts_with("[data] cannot resume with other data (bytes: "));
  BatchMaker resumed(mended, options_);
  resumed.restore(state, true);
  for (const char* kept : {"epoch", "place", "open", "closed", "counts"})
    EXPECT_EQ(resumed.state().at(kept), state.at(kept)) << kept;
  EXPECT_NE(resumed.state().at("data"), state.at("data"));
  write({"1 2 3", "4 5 6 7", "8 9", "1 2 3 4 5", "6 7 8"});
  EXPECT_EQ(
      refusal_of_state(state, mixture(), true),
      "[data] cannot resume with other data (rows: 6 before, 5 now); the order of all rows depends on their "
      "number: put another row in the place of one that was taken out (a copy of a good one will do), "
      "or restore the file and set data.on_bad_row: skip, or start a new run");
}

TEST_F(BatchMakerTest, PiecesOfARowAreKeptByTheirNumber) {
  RowOptions pieces;
  pieces.max_length = 4;
  pieces.overflow = Overflow::kSplit;
  options_.num_epochs = 2;
  options_.pack_window = 3;
  const Mixture rows = mixture(pieces);
  BatchMaker whole(rows, options_);
  int with_pieces = 0;
  for (bool more = true; more;) {
    const Json state = whole.state();
    for (const char* held : {"open", "closed"})
      for (const Json& group : state.at(held).as_array())
        for (const Json& document : group.as_array()) with_pieces += document.is_array();
    BatchMaker resumed(rows, options_);
    resumed.restore(state);
    EXPECT_EQ(resumed.state(), state);
    const std::optional<Batch> expected = whole.next(), found = resumed.next();
    more = expected.has_value();
    ASSERT_EQ(found.has_value(), more);
    if (!more) break;
    EXPECT_EQ(found->rows.at(0).ids, expected->rows.at(0).ids);
  }
  EXPECT_GT(with_pieces, 0);
  EXPECT_GT(whole.counts().changed.split, 0);
}

TEST_F(BatchMakerTest, EpochsAreNotNegative) {
  options_.num_epochs = -1;
  const Mixture rows = mixture();
  EXPECT_EQ(message_of([&] { BatchMaker(rows, options_); }), "[data] num_epochs is -1, expected at least 0");
}

// A file that is sorted by length, of which some rows are bad.
TEST_F(BatchMakerTest, StepsOfRowsInTheOrderOfTheFileAreEstimated) {
  std::vector<std::string> texts;
  for (int i = 0; i < 1500; ++i) texts.push_back(i % 3 == 0 ? "" : i < 750 ? "1 2" : "1 2 3 4 5 6");
  write(texts);
  options_.shuffle = false;
  options_.num_epochs = 1;
  const Mixture rows = mixture();
  BatchMaker maker(rows, options_);
  double steps = 0;
  while (maker.next()) ++steps;
  EXPECT_NEAR(estimate_steps_per_epoch(rows, options_), steps, 0.05 * steps);
}

}  // namespace
}  // namespace temper::data
