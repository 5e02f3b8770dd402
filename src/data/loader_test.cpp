#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "base/threads/threads.h"
#include "data/sources/test_support.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

// Rows of different lengths, some long, some bad, each with its number in it.
std::vector<std::string> some_rows(int count, bool with_bad = true) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    std::string text = fmt::format("row {}:", i);
    for (int word = 0; word < i * 7 % 11; ++word) text += " x";
    lines.push_back(with_bad && i % 9 == 4 ? R"({"wrong": 1})" : Json(Json::Object{{"text", text}}).dump());
  }
  return lines;
}

class LoaderTest : public testing::Test {
 protected:
  LoaderTest() {
    row_options_.eos_id = 3000;
    row_options_.max_length = 24;
    options_.seed = 5;
    options_.num_epochs = 3;
    options_.rows_per_step = 2;
    options_.pack_window = 3;
    options_.max_length = 24;
    options_.on_bad_row = OnBadRow::kSkip;
    open(some_rows(23));
  }

  void open(const std::vector<std::string>& lines) { file_ = write_lines(folder_, "rows.jsonl", lines); }
  Mixture rows() const { return mixture_of({file_}, row_options_); }

  TemporaryDirectory folder_;
  std::string file_;
  RowOptions row_options_;
  LoaderOptions options_;
};

std::string print(const Batch& batch) {
  std::string out = fmt::format("epoch {} at {} tokens {} targets {}:", batch.epoch, batch.progress,
                                batch.tokens, batch.target_tokens);
  for (const PackedRow& row : batch.rows) {
    out += " [";
    for (size_t i = 0; i < row.ids.size(); ++i) out += fmt::format("{}>{} ", row.ids[i], row.targets[i]);
    for (const int64_t length : row.document_lengths) out += fmt::format("/{}", length);
    out += "]";
  }
  return out;
}

std::vector<std::string> all_batches(Loader& loader) {
  std::vector<std::string> out;
  while (const auto batch = loader.next()) out.push_back(print(*batch));
  return out;
}

// The texts of all documents.
std::vector<std::string> documents_of(const Batch& batch) {
  std::vector<std::string> out;
  for (const PackedRow& row : batch.rows) {
    size_t begin = 0;
    for (const int64_t length : row.document_lengths) {
      out.push_back(qwen().decode(std::span(row.ids).subspan(begin, static_cast<size_t>(length)), true));
      begin += static_cast<size_t>(length);
    }
  }
  return out;
}

TEST_F(LoaderTest, EachEpochReadsEachRowOnce) {
  const Mixture mixture = rows();
  for (const Packing packing : {Packing::kBestFit, Packing::kSequential, Packing::kNone}) {
    options_.packing = packing;
    Loader loader(mixture, options_);
    std::map<std::string, int> seen;
    size_t rows_in_short_steps = 0;
    while (const auto batch = loader.next()) {
      EXPECT_EQ(rows_in_short_steps, 0u) << "only the last step may be short";
      if (batch->rows.size() < 2) rows_in_short_steps = batch->rows.size();
      int64_t tokens = 0, targets = 0;
      for (const PackedRow& row : batch->rows) {
        EXPECT_LE(row.size(), row_options_.max_length);
        tokens += row.size();
        targets += row.num_targets();
      }
      EXPECT_EQ(tokens, batch->tokens);
      EXPECT_EQ(targets, batch->target_tokens);
      for (const std::string& text : documents_of(*batch)) ++seen[text];
    }
    EXPECT_EQ(seen.size(), 20u);
    for (const auto& [text, count] : seen) EXPECT_EQ(count, 3) << text;
    EXPECT_EQ(loader.counts().rows, 69);
    EXPECT_EQ(loader.counts().dropped.bad, 9);
  }
}

TEST_F(LoaderTest, ResumingAtEveryStepGoesOnExactly) {
  const Mixture mixture = rows();
  for (const Packing packing : {Packing::kBestFit, Packing::kSequential, Packing::kNone})
    for (const int64_t threads : {0, 3})
      for (const int64_t tokens_per_step : {0, 60}) {
        options_.packing = packing;
        options_.threads = threads;
        options_.tokens_per_step = tokens_per_step;
        options_.rows_per_step = tokens_per_step > 0 ? 0 : 3;
        Loader whole(mixture, options_);
        std::vector<std::string> states = {whole.state().dump()}, batches;
        while (const auto batch = whole.next()) {
          batches.push_back(print(*batch));
          states.push_back(whole.state().dump());
        }
        EXPECT_GT(batches.size(), 5u);
        for (size_t step = 0; step < states.size(); ++step) {
          Loader resumed(mixture, options_);
          if (step % 2) resumed.next();  // what it did before does not matter
          resumed.restore(Json::parse(states[step], "state"));
          EXPECT_EQ(resumed.state().dump(), states[step]);
          EXPECT_EQ(all_batches(resumed),
                    std::vector(batches.begin() + static_cast<std::ptrdiff_t>(step), batches.end()));
          EXPECT_EQ(resumed.state(), whole.state());
        }
      }
}

TEST_F(LoaderTest, ThreadsDoNotMatter) {
  const Mixture mixture = rows();
  Loader background(mixture, options_);
  const auto expected = all_batches(background);
  for (const int64_t count : {2, 5}) {
    options_.threads = count;
    Loader loader(mixture, options_);
    EXPECT_EQ(all_batches(loader), expected);
  }
  options_.threads = 0;
  const int threads = num_threads();
  for (const int count : {1, 4}) {
    set_num_threads(count);
    Loader loader(mixture, options_);
    EXPECT_EQ(all_batches(loader), expected);
  }
  set_num_threads(threads);
}

// A run that is stopped a thousand times, after any number of steps and with any number of threads, is the
// run without a stop.
TEST_F(LoaderTest, AThousandStopsChangeNothing) {
  options_.num_epochs = 0;
  options_.mixing = Mixing::kAllExhausted;
  row_options_.overflow = Overflow::kSplit;
  const std::string second = write_lines(folder_, "second.jsonl", some_rows(61));
  std::vector<Member> members = rows().members();
  members.push_back(mixture_of({second}, row_options_).members()[0]);
  members[1].weight = 2.5;
  const Mixture mixture(std::move(members));
  const Random random(11, RandomPurpose::kData);
  for (const Packing packing : {Packing::kBestFit, Packing::kSequential}) {
    options_.packing = packing;
    options_.threads = 2;
    Loader whole(mixture, options_);
    Json state = whole.state();
    for (uint64_t stop = 0; stop < 500; ++stop) {
      options_.threads = static_cast<int64_t>(random.below(4, 2 * stop));
      Loader resumed(mixture, options_);
      resumed.restore(Json::parse(state.dump(), "state"));
      for (uint64_t step = random.below(4, 2 * stop + 1) + 1; step > 0; --step) {
        const auto expected = whole.next(), found = resumed.next();
        ASSERT_TRUE(expected && found);
        ASSERT_EQ(print(*found), print(*expected)) << "behind stop " << stop;
      }
      state = resumed.state();
      ASSERT_EQ(state.dump(), whole.state().dump());
    }
  }
}

TEST_F(LoaderTest, ShufflesByEpochAndSeed) {
  const auto order = [](uint64_t seed, int64_t epoch) {
    const Permutation shuffled = Permutation::shuffled(1000, seed, static_cast<uint64_t>(epoch));
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 1000; ++i) rows.push_back(shuffled[i]);
    return rows;
  };
  std::vector<int64_t> sorted = order(1, 0);
  EXPECT_EQ(sorted, order(1, 0));
  EXPECT_NE(sorted, order(1, 1));
  EXPECT_NE(sorted, order(2, 0));
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NE(sorted, order(1, 0));
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
}

TEST_F(LoaderTest, EvaluationReadsInTheOrderOfTheFile) {
  options_.shuffle = false;
  options_.packing = Packing::kNone;
  options_.num_epochs = 1;
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  std::vector<std::string> texts;
  while (const auto batch = loader.next())
    for (const std::string& text : documents_of(*batch)) texts.push_back(text.substr(0, text.find(':')));
  ASSERT_EQ(texts.size(), 20u);
  EXPECT_EQ(texts[3], "row 3");
  EXPECT_EQ(texts[4], "row 5");  // the fifth is bad
  EXPECT_EQ(texts[19], "row 21");
}

TEST_F(LoaderTest, EndlessWhenThereAreNoEpochs) {
  options_.num_epochs = 0;
  options_.rows_per_step = 50;  // more than an epoch has
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  for (int step = 0; step < 5; ++step) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->rows.size(), 50u);
  }
  EXPECT_GT(loader.counts().rows, 230);
}

TEST_F(LoaderTest, RestoringOtherDataOrAnotherOrderIsAnError) {
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  loader.next();
  const Json state = loader.state();
  options_.seed = 6;
  Loader other_seed(mixture, options_);
  EXPECT_EQ(message_of([&] { other_seed.restore(state); }),
            "[data] cannot resume with other settings (seed: 5 before, 6 now); restore the setting, or start "
            "a new run");
  options_.seed = 5;
  const Mixture other = mixture_of({write_lines(folder_, "other.jsonl", some_rows(24))}, row_options_);
  Loader other_data(other, options_);
  EXPECT_TRUE(
      message_of([&] {
        other_data.restore(state);
      }).starts_with("[data] cannot resume with other data (rows: 23 before, 24 now); give the files"));
}

TEST_F(LoaderTest, AFileThatIsWrittenToIsAnErrorWhateverBadRowsAre) {
  options_.on_bad_row = OnBadRow::kSkip;
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  FileWriter(folder_ / "rows.jsonl", true).write("{}\n");
  EXPECT_NE(message_of([&] { all_batches(loader); }).find("was written to while it was being read"),
            std::string::npos);
}

TEST_F(LoaderTest, ErrorsComeThrough) {
  options_.on_bad_row = OnBadRow::kStop;
  options_.shuffle = false;
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  EXPECT_NE(
      message_of([&] { all_batches(loader); }).find("rows.jsonl:5] a row has no field that holds its text"),
      std::string::npos);
  options_.on_bad_row = OnBadRow::kSkip;
  const Mixture hopeless =
      mixture_of({write_lines(folder_, "bad.jsonl", {R"({"wrong": 1})", R"({"text": ""})"})}, row_options_);
  options_.num_epochs = 0;
  Loader none(hopeless, options_);
  EXPECT_EQ(message_of([&] { none.next(); }),
            "[data] no row of rows is left to use: kept 0 of 2 rows; dropped 1 with an empty answer, 1 bad; "
            "data.on_empty_answer: learn keeps rows with empty answers");
  row_options_.max_length = 4;
  row_options_.overflow = Overflow::kTruncate;
  const Mixture cut = mixture_of(
      {write_lines(folder_, "cut.jsonl", {R"({"prompt": "longer than four tokens", "completion": "x"})"})},
      row_options_);
  expect_has(message_of([&] { Loader(cut, options_).next(); }),
             "dropped 1 without a target token; rows that are cut lose their targets first: see "
             "data.max_length (24); "
             "rows without an answer, or whose chat template writes none, have no targets: `temper data "
             "inspect` shows the texts");
  row_options_.max_length = 24;
  const Mixture unanswered =
      mixture_of({write_lines(folder_, "asked.jsonl", {R"({"input_ids": [5, 6], "labels": [-100, -100]})"})},
                 row_options_);
  EXPECT_EQ(message_of([&] { Loader(unanswered, options_).next(); }).find("max_length"), std::string::npos);
  options_.tokens_per_step = 5;
  EXPECT_EQ(message_of([&] { Loader(mixture, options_); }),
            "[data] set one of rows_per_step (found 2) and tokens_per_step (found 5) above 0");
}

// Rows that wait to be packed are read and not trained.
TEST_F(LoaderTest, CountsRowsThatWereTrained) {
  const Mixture mixture = rows();
  options_.num_epochs = 0;
  Loader loader(mixture, options_);
  int64_t documents = 0;
  for (int batch = 0; batch < 4; ++batch) {
    const std::optional<Batch> next = loader.next();
    for (const PackedRow& row : next->rows) documents += std::ssize(row.document_lengths);
    EXPECT_EQ(loader.counts().trained, documents);
  }
  EXPECT_LT(documents, loader.counts().kept);
  Loader resumed(mixture, options_);
  resumed.restore(loader.state());
  EXPECT_EQ(resumed.counts().trained, documents);
  RowCounts counts;
  counts.trained = 12;
  counts.rows = counts.kept = 14;
  EXPECT_EQ(counts.describe_training(6), "trained 12 rows, of 6 in the data");
  counts.changed.truncated = 2;
  counts.dropped.bad = 1;
  EXPECT_EQ(counts.describe_training(6),
            "trained 12 rows, of 6 in the data; of 14 that were read: 2 truncated, dropped 1 bad");
}

// The window holds all of the data, and batches have few of them.
TEST_F(LoaderTest, ProgressIsOfRowsInBatches) {
  open(some_rows(60, false));
  const Mixture mixture = rows();
  options_.num_epochs = 2;
  options_.pack_window = 100;
  for (const Packing packing : {Packing::kBestFit, Packing::kSequential, Packing::kNone}) {
    options_.packing = packing;
    Loader loader(mixture, options_);
    double last = 0;
    while (const auto batch = loader.next()) {
      EXPECT_NEAR(batch->progress, static_cast<double>(loader.counts().trained) / 60, 1e-9);
      EXPECT_GT(batch->progress, last);
      last = batch->progress;
    }
    EXPECT_EQ(last, 2);
  }
}

// A piece of a row that was split is no row of its own.
TEST_F(LoaderTest, PiecesOfARowAreOneRow) {
  row_options_.overflow = Overflow::kSplit;
  row_options_.max_length = 4;
  options_.max_length = 4;
  options_.num_epochs = 1;
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  all_batches(loader);
  EXPECT_GT(loader.counts().changed.split, 0);
  EXPECT_EQ(loader.counts().trained, loader.counts().kept);
}

// Where all rows of a file have another form, the first one is named, whichever comes first.
TEST_F(LoaderTest, TheFirstRowSaysWhatIsWrongWithAll) {
  options_.on_bad_row = OnBadRow::kStop;
  const std::string good = write_lines(folder_, "good.jsonl", some_rows(40, false));
  const std::string wrong =
      write_lines(folder_, "wrong.jsonl", std::vector<std::string>(40, R"({"wrong": 1})"));
  const Mixture mixture = mixture_of({good, wrong}, row_options_);
  Loader loader(mixture, options_);
  EXPECT_NE(message_of([&] { all_batches(loader); }).find("wrong.jsonl:1] "), std::string::npos);
  const Mixture one = rows();  // its first rows are good
  Loader other(one, options_);
  EXPECT_EQ(message_of([&] { all_batches(other); }).find("rows.jsonl:1] "), std::string::npos);
}

TEST_F(LoaderTest, EstimatesTheStepsOfAnEpoch) {
  options_.num_epochs = 1;
  open(some_rows(400, false));
  const Mixture mixture = rows();
  for (const Packing packing : {Packing::kBestFit, Packing::kSequential, Packing::kNone}) {
    options_.packing = packing;
    Loader loader(mixture, options_);
    const auto steps = static_cast<double>(all_batches(loader).size());
    EXPECT_NEAR(estimate_steps_per_epoch(mixture, options_), steps, 0.05 * steps);
  }
  // Rows that leave much of a step empty.
  options_.packing = Packing::kNone;
  options_.rows_per_step = 0;
  for (const int64_t tokens : {10, 40, 400}) {
    options_.tokens_per_step = tokens;
    Loader loader(mixture, options_);
    const auto steps = static_cast<double>(all_batches(loader).size());
    EXPECT_NEAR(estimate_steps_per_epoch(mixture, options_), steps, 0.05 * steps + 1) << tokens;
  }
}

}  // namespace
}  // namespace temper::data
