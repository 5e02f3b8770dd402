#include "checkpoints/files/element_runs.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

std::vector<std::vector<int64_t>> lists(const std::vector<Slice>& slices) {
  std::vector<std::vector<int64_t>> all;
  for (const Slice& slice : slices) all.push_back({slice.whole, slice.own, slice.count});
  return all;
}

TEST(ElementRuns, AreWrittenShortAndReadBack) {
  struct Case {
    std::vector<Slice> runs;
    const char* text;
  };
  for (const Case& of : std::vector<Case>{
           {{{0, 0, 6}}, R"({"shape":[4,6],"runs":[[0,6]]})"},
           {{{3, 0, 3}, {9, 3, 3}, {15, 6, 3}, {21, 9, 3}}, R"({"shape":[4,6],"runs":[[3,3,6,4]]})"},
           // Elements in a row of columns: the first and the last run are shorter.
           {{{4, 0, 2}, {9, 2, 3}, {15, 5, 3}, {21, 8, 1}},
            R"({"shape":[4,6],"runs":[[4,2],[9,3,6,2],[21,1]]})"},
           {{}, R"({"shape":[4,6],"runs":[]})"}}) {
    EXPECT_EQ(format_elements({4, 6}, of.runs), of.text);
    const int64_t count = of.runs.empty() ? 0 : of.runs.back().own + of.runs.back().count;
    const HeldElements held = parse_elements(of.text, count);
    EXPECT_EQ(held.whole, Shape({4, 6}));
    EXPECT_EQ(lists(held.runs), lists(of.runs));
  }
}

TEST(ElementRuns, RefuseWhatNoTensorHas) {
  const auto error = [](const std::string& text, int64_t count = 6) {
    return error_of([&] { parse_elements(text, count); });
  };
  expect_has(error("runs"), "not valid JSON");
  expect_has(error(R"({"runs":[]})"), "shape");
  expect_has(error(R"({"shape":[4,6]})"), "runs");
  expect_has(error(R"({"shape":[4,-6],"runs":[]})"), "a shape of 2 sizes that no tensor has");
  expect_has(error(R"({"shape":[4294967296,4294967296],"runs":[]})"), "that no tensor has");
  expect_has(error(R"({"shape":[1,1,1,1,1,1,1],"runs":[]})"), "found 7 dimensions, expected at most 6");
  expect_has(error(R"({"shape":[24],"runs":[[1,2,3]]})"), "found a run of 3 numbers, expected 2 or 4");
  expect_has(error(R"({"shape":[24],"runs":[[0,2,-1,3]]})"), "found a run of 3 times, -1 elements apart");
  expect_has(error(R"({"shape":[24],"runs":[[20,6]]})"), "found 6 elements from 20 on, behind 0 of 24");
  expect_has(error(R"({"shape":[24],"runs":[[9223372036854775807,6]]})"), "of 24");
  expect_has(error(R"({"shape":[24],"runs":[[3,3],[5,3]]})"), "found 3 elements from 5 on, behind 6 of 24");
  expect_has(error(R"({"shape":[24],"runs":[[0,1,1,1000000000000]]})"), "the tensor has 6 of them");
  expect_has(error(R"({"shape":[24],"runs":[[0,5]]})"), "found 5 elements in its runs, expected the 6");
  expect_has(error(R"({"shape":[24],"runs":[[0,0]]})"), "found 0 elements from 0 on");
}

}  // namespace
}  // namespace temper::checkpoints
