#include "data/batch_pictures.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/parts/rooms.h"
#include "data/loader.h"
#include "data/rows/picture_test_support.h"
#include "data/sources/test_support.h"
#include "preprocessing/pixel_values.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

constexpr int64_t kPictureRows = 8;

std::string decoded_case(const std::string& name) {
  return read_file(join_path(TEMPER_SOURCE_DIR "/tests/goldens/decoded_pictures", name));
}

// Eight rows with one or two pictures and as many tokens of text; the files of some can be broken.
class BatchPictures : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("media", "png")) GTEST_SKIP() << "this build reads no PNG";
    write_file(folder_ / "a.png", decoded_case("rgb.png"));
    write_file(folder_ / "b.png", decoded_case("turned_by_exif.png"));
    settings_.layout = preprocessing::PatchLayout{};
    options_ = {.seed = 3, .max_length = 40, .pack_window = 2, .rows_per_step = 2, .num_epochs = 2};
    options_.pictures = loader_ = std::make_shared<PictureLoader>(settings_, int64_t{1} << 20);
    write_rows("a.png");
  }
  // `third`: the second picture of row 3.
  void write_rows(const std::string& third) {
    std::vector<std::string> lines;
    for (int64_t i = 0; i < kPictureRows; ++i)
      lines.push_back(fmt::format(R"({{"images": ["{}.png"{}], "prompt": "<image>{}", "completion": " {}"}})",
                                  i % 2 == 0 ? "a" : "b", i == 3 ? ", \"" + third + "\"" : "",
                                  i == 3 ? "<image>" : "", i));
    file_ = write_lines(folder_, "rows.jsonl", lines);
  }
  // Its header can be read, its pixels cannot.
  void write_cut() { write_file(folder_ / "cut.png", decoded_case("rgb.png").substr(0, 700)); }

  Mixture rows() const {
    RowOptions options;
    options.max_length = 40;
    options.pictures =
        PictureTokens{kPad, kStart, kEnd, [loader = loader_](const auto& picture, const auto& folder) {
                        return loader->shape(picture, folder);
                      }};
    Member member;
    member.name = "rows";
    member.source = std::make_shared<Source>(std::vector<std::string>{file_});
    member.encoder = std::make_shared<RowEncoder>(seeing(), nullptr, options);
    return Mixture({std::move(member)});
  }

  TemporaryDirectory folder_;
  preprocessing::PictureSettings settings_;
  std::shared_ptr<const PictureLoader> loader_;
  LoaderOptions options_;
  std::string file_;
};

std::string picture_batch(const Batch& batch) {
  std::string out = fmt::format("{} {} {}:", batch.tokens, batch.target_tokens, batch.progress);
  for (const PackedRow& row : batch.rows) {
    for (size_t i = 0; i < row.ids.size(); ++i) out += fmt::format(" {}>{}", row.ids[i], row.targets[i]);
    double sum = 0;
    for (const float value : row.pixels->values()) sum = sum * 0.9 + value;
    for (const PlacedPicture& picture : row.pictures)
      out += fmt::format(" {}:{}@{}", picture.row, picture.file->reference.path, picture.first);
    out += fmt::format(" {}x{}={}\n", row.pixels->rows, row.pixels->columns, sum);
  }
  return out;
}

std::vector<std::string> rest_of(Loader& loader) {
  std::vector<std::string> batches;
  while (const std::optional<Batch> batch = loader.next()) batches.push_back(picture_batch(*batch));
  return batches;
}

TEST_F(BatchPictures, RowsHaveTheValuesOfTheirPicturesInOrder) {
  const Mixture mixture = rows();
  Loader loader(mixture, options_);
  int64_t pictures = 0;
  while (const std::optional<Batch> batch = loader.next())
    for (const PackedRow& row : batch->rows) {
      int64_t begin = 0;
      ASSERT_EQ(row.pixels->grids.size(), row.pictures.size());
      for (size_t i = 0; i < row.pictures.size(); ++i, ++pictures) {
        const PlacedPicture& picture = row.pictures[i];
        EXPECT_EQ(row.pixels->grids[i], picture.shape.grid);
        EXPECT_EQ(picture.file->folder, folder_.path());
        const std::string bytes = read_file(folder_ / picture.file->reference.path);
        const preprocessing::PixelValues expected =
            preprocessing::prepare(media::read_picture({bytes, "x"}), settings_, "x");
        ASSERT_EQ(expected.shape, picture.shape);
        const auto found = row.pixels->values().subspan(static_cast<size_t>(begin), expected.values().size());
        EXPECT_TRUE(std::ranges::equal(found, expected.values()));
        begin += std::ssize(expected.values());
      }
      EXPECT_EQ(begin, row.pixels->rows * row.pixels->columns);
    }
  EXPECT_EQ(pictures, 2 * (kPictureRows + 1));
}

TEST_F(BatchPictures, AreTheSameForAnyNumberOfThreads) {
  const Mixture mixture = rows();
  options_.threads = 0;
  Loader expected(mixture, options_);
  const std::vector<std::string> batches = rest_of(expected);
  EXPECT_GT(batches.size(), 2U);
  for (const int64_t threads : {1, 3}) {
    options_.threads = threads;
    Loader loader(mixture, options_);
    EXPECT_EQ(rest_of(loader), batches);
  }
}

TEST_F(BatchPictures, ResumeIsExact) {
  write_cut();
  write_rows("cut.png");
  const Mixture mixture = rows();
  options_.on_bad_row = OnBadRow::kSkip;
  Loader whole(mixture, options_);
  std::vector<Json> states{whole.state()};
  std::vector<std::string> batches;
  while (const std::optional<Batch> batch = whole.next()) {
    batches.push_back(picture_batch(*batch));
    states.push_back(whole.state());
  }
  for (size_t from = 0; from < states.size(); ++from) {
    Loader resumed(mixture, options_);
    resumed.restore(states[from]);
    EXPECT_EQ(
        rest_of(resumed),
        std::vector<std::string>(
            batches.begin() + static_cast<std::ptrdiff_t>(std::min(from, batches.size())), batches.end()));
    EXPECT_EQ(resumed.counts().to_json(), whole.counts().to_json());
  }
}

TEST_F(BatchPictures, BrokenOnesStopTheRunOrLeaveTheirRowOut) {
  write_rows("b.png");
  const Mixture good = rows();
  Loader all(good, options_);
  int64_t tokens = 0, targets = 0;
  while (const std::optional<Batch> batch = all.next()) {
    tokens += batch->tokens;
    targets += batch->target_tokens;
  }
  const Example row = good.read(3).row.examples.at(0);

  write_cut();
  write_rows("cut.png");
  const Mixture mixture = rows();
  ASSERT_TRUE(mixture.read(3).kept());  // its header is whole
  Loader stopped(mixture, options_);
  const std::string message = error_of([&] { rest_of(stopped); });
  expect_has(message, file_ + ":4] images[1]: [cut.png] is truncated after 700 bytes");
  expect_has(message, "set data.on_bad_row: skip");

  options_.on_bad_row = OnBadRow::kSkip;
  Loader skipping(mixture, options_);
  int64_t left = 0, left_targets = 0;
  while (const std::optional<Batch> batch = skipping.next()) {
    for (const PackedRow& packed : batch->rows) {
      for (const PlacedPicture& picture : packed.pictures) EXPECT_NE(picture.row, 3);
      EXPECT_EQ(std::ssize(packed.pixels->grids), std::ssize(packed.pictures));
    }
    left += batch->tokens;
    left_targets += batch->target_tokens;
  }
  const RowCounts counts = skipping.counts();
  EXPECT_EQ(counts.dropped.bad, 2);  // once in each epoch
  EXPECT_EQ(counts.kept, 2 * (kPictureRows - 1));
  EXPECT_EQ(counts.trained, 2 * (kPictureRows - 1));
  EXPECT_EQ(counts.tokens, left);
  EXPECT_EQ(counts.target_tokens, left_targets);
  EXPECT_EQ(left, tokens - 2 * row.size());
  EXPECT_EQ(left_targets, targets - 2 * row.num_targets());
}

TEST_F(BatchPictures, WithoutAWholeOneThereIsNoRowLeft) {
  write_cut();
  file_ = write_lines(folder_, "rows.jsonl",
                      {R"({"images": ["cut.png"], "prompt": "<image>", "completion": "x"})",
                       R"({"images": ["cut.png"], "prompt": "<image>", "completion": "y"})"});
  const Mixture mixture = rows();
  options_.on_bad_row = OnBadRow::kCount;
  for (const int64_t epochs : {0, 1, 3}) {
    options_.num_epochs = epochs;
    Loader loader(mixture, options_);
    expect_has(error_of([&] { rest_of(loader); }), "no row of rows is left to use");
  }
}

TEST_F(BatchPictures, HeadersAreReadWhenRowsAre) {
  write_rows("no.png");
  const Mixture mixture = rows();
  expect_has(mixture.read(3).error, file_ + ":4] images[1]: [" + (folder_ / "no.png") + "]");
  options_.on_bad_row = OnBadRow::kSkip;
  Loader loader(mixture, options_);
  rest_of(loader);
  EXPECT_EQ(loader.counts().dropped.bad, 2);
  EXPECT_EQ(loader.counts().kept, 2 * (kPictureRows - 1));
}

TEST_F(BatchPictures, FilesMustNotChange) {
  const Mixture mixture = rows();
  std::vector<DocumentGroup> groups(1);
  groups[0].push_back({0, 0, 0, mixture.read(0).row.examples.at(0)});
  write_file(folder_ / "a.png", decoded_case("turned_by_exif.png"));
  // Of as many tokens, turned.
  expect_has(open_pictures(groups, *loader_, 0).at(0).at(0).error, "images[0]: [a.png] has another size");
}

}  // namespace
}  // namespace temper::data
