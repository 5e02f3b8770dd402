#include "data/sources/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "data/sources/test_support.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

class MixtureTest : public testing::Test {
 protected:
  Member member(const std::string& name, int rows) {
    std::vector<std::string> lines;
    for (int i = 0; i < rows; ++i)
      lines.push_back(Json(Json::Object{{"text", fmt::format("{} {} end", name, i)}}).dump());
    Member made = mixture_of({write_lines(folder_, name + ".jsonl", lines)}, {}).members()[0];
    made.name = name;
    return made;
  }
  TemporaryDirectory folder_;
};

std::set<std::string> texts_of(const Mixture& mixture) {
  std::set<std::string> texts;
  for (int64_t i = 0; i < mixture.size(); ++i) texts.insert(mixture.json(i).at("text").as_string());
  return texts;
}

TEST_F(MixtureTest, CountsRowsThroughItsSources) {
  const Mixture mixture({member("a", 3), member("b", 2)});
  EXPECT_EQ(mixture.size(), 5);
  EXPECT_EQ(mixture.member_of(2), 0u);
  EXPECT_EQ(mixture.member_of(3), 1u);
  EXPECT_TRUE(mixture.place(3).ends_with("b.jsonl:1")) << mixture.place(3);
  EXPECT_EQ(qwen().decode(mixture.read(4).row.examples.at(0).ids), "b 1 end");
}

TEST_F(MixtureTest, HoldsRowsOut) {
  const std::vector<Member> all{member("a", 40), member("b", 3)};
  const HeldOut held = hold_out(all, 0.1, 7);
  const Mixture whole(all), rest(held.rest), out(held.held_out);
  EXPECT_EQ(rest.sizes(), (std::vector<int64_t>{36, 2}));
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{4, 1}));
  std::set<std::string> together = texts_of(rest);
  together.merge(texts_of(out));
  EXPECT_EQ(together, texts_of(whole));
  EXPECT_EQ(texts_of(Mixture(hold_out(all, 0.1, 7).held_out)), texts_of(out));
  EXPECT_NE(texts_of(Mixture(hold_out(all, 0.1, 8).held_out)), texts_of(out));
  EXPECT_NE(rest.fingerprint().dump(), whole.fingerprint().dump());
  EXPECT_EQ(rest.fingerprint().dump(), Mixture(hold_out(all, 0.1, 7).rest).fingerprint().dump());
  EXPECT_NE(rest.fingerprint().dump(), Mixture(hold_out(all, 0.1, 8).rest).fingerprint().dump());
  EXPECT_THROW(hold_out({member("c", 1)}, 0.5, 1), Error);
  // A part of one source is not all of it.
  const std::vector<Member> one{member("d", 4)};
  const Mixture part(hold_out(one, 0.5, 1).rest);
  EXPECT_EQ(part.fingerprint().at("rows"), Json(2));
  EXPECT_NE(part.fingerprint().at("hash"), Mixture(one).fingerprint().at("hash"));
}

TEST_F(MixtureTest, TheSameRowsAreReadForSomethingElse) {
  const std::string pairs =
      write_lines(folder_, "pairs.jsonl", {R"({"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"})"});
  const Mixture mixture = mixture_of({pairs}, {});
  EXPECT_NE(mixture.read(0).error.find("the row is a preference"), std::string::npos);
  const ReadRow read = mixture.with_goal(Goal::kPairs).read(0);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.row.examples.at(0).answers.size(), 2u);
}

TEST_F(MixtureTest, RowsOutsideAreDefects) {
  const Mixture mixture({member("a", 3)});
  for (const int64_t row : {-1, 3}) {
    EXPECT_NE(error_of([&] { mixture.read(row); }, ErrorKind::kDefect).find("out of range"),
              std::string::npos);
    EXPECT_NE(
        error_of([&] { mixture.members()[0].source->row(row); }, ErrorKind::kDefect).find("out of range"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace temper::data
