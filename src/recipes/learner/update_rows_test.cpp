#include "recipes/learner/update_rows.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/packed_rows.h"

namespace temper::recipes {
namespace {

// The n-th batch has one document of n tokens.
class CountedBatches : public BatchSource {
 public:
  data::Batch next() override {
    ++count_;
    return {.rows = {test_row(1, {count_})}, .progress = static_cast<double>(count_)};
  }
  Json state() const override { return count_; }
  void restore(const Json&, bool) override {}
  double seconds_waited() const override { return 10 * static_cast<double>(count_); }
  Json counts() const override { return {}; }
  std::string describe_counts() const override { return ""; }

 private:
  int64_t count_ = 0;
};

void refuse(const std::vector<data::PackedRow>&) { throw Error("[data] row 3 is empty"); }
void accept(const std::vector<data::PackedRow>&) {}

TEST(UpdateRows, AreTheLastThatWereRead) {
  UpdateRows rows;
  rows.open(std::make_unique<CountedBatches>());
  rows.read(true, accept);
  rows.read(true, accept);
  EXPECT_EQ(rows.rows().at(0).size(), 2);
  EXPECT_EQ(rows.epoch(), 2);
  EXPECT_EQ(rows.seconds_waited(), 10);
  EXPECT_EQ(rows.position().as_int(), 2);
}

TEST(UpdateRows, ARefusedBatchIsReadAgain) {
  UpdateRows rows;
  rows.open(std::make_unique<CountedBatches>());
  rows.read(true, accept);
  EXPECT_EQ(error_of([&] { rows.read(true, refuse); }), "[data] row 3 is empty");
  EXPECT_EQ(rows.rows().at(0).size(), 1) << "as before";
  EXPECT_EQ(rows.position().as_int(), 1);
}

TEST(UpdateRows, ABatchThatIsPutBackIsReadAgain) {
  UpdateRows rows;
  rows.open(std::make_unique<CountedBatches>());
  rows.read(true, accept);
  rows.put_back();
  EXPECT_EQ(rows.position().as_int(), 0);
}

}  // namespace
}  // namespace temper::recipes
