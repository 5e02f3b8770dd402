#include "device/last_uses.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

namespace temper::device {
namespace {

// Streams that only write down what they are asked for.
class Recorded final : public Streams {
 public:
  int count() const override { return number; }
  int current() const override { return here; }
  Mark mark(int stream) override {
    if (fails) throw std::bad_alloc();
    ++marks;
    return std::make_shared<int>(++points[static_cast<size_t>(stream)]);
  }
  void wait(int stream, const Mark& mark) override {
    said += std::to_string(here) + " waits for " + std::to_string(stream) + "." +
            std::to_string(*std::static_pointer_cast<int>(mark)) + "\n";
  }
  void finish() noexcept override { said += "all is done\n"; }
  std::string take_said() { return std::exchange(said, ""); }

  int number = 1, here = 0, marks = 0;
  bool fails = false;
  std::vector<int> points = std::vector<int>(4);
  std::string said;
};

class LastUsesTest : public testing::Test {
 protected:
  Recorded streams_;
  LastUses uses_{&streams_};
};

TEST_F(LastUsesTest, OneStreamCostsNothing) {
  for (int i = 0; i < 10; ++i) {
    uses_.taken(64 * i, 64);
    uses_.used(64 * i);
    uses_.given(64 * i, 64);
  }
  EXPECT_EQ(streams_.marks, 0);
  EXPECT_EQ(streams_.said, "");
  LastUses without(nullptr);
  without.taken(0, 64);
  without.given(0, 64);
}

TEST_F(LastUsesTest, AnotherStreamWaitsForWhoLeftTheMemory) {
  streams_.number = 2;
  uses_.taken(0, 256);
  uses_.given(0, 256);
  streams_.here = 1;
  uses_.taken(0, 256);
  EXPECT_EQ(streams_.take_said(), "1 waits for 0.1\n");
  uses_.given(0, 256);
  uses_.taken(0, 256);  // its own
  EXPECT_EQ(streams_.take_said(), "");
  uses_.given(0, 256);
  streams_.here = 0;
  uses_.taken(0, 64);
  EXPECT_EQ(streams_.take_said(), "0 waits for 1.2\n");
}

// Blocks are cut and merged; each piece of free memory keeps who left it.
TEST_F(LastUsesTest, PiecesKeepTheirOwnMarks) {
  streams_.number = 3;
  uses_.taken(0, 128);
  streams_.here = 2;
  uses_.taken(128, 128);
  uses_.given(128, 128);
  streams_.here = 0;
  uses_.given(0, 128);
  streams_.here = 1;
  uses_.taken(64, 128);  // the end of one and the beginning of the other
  EXPECT_EQ(streams_.take_said(), "1 waits for 0.1\n1 waits for 2.1\n");
  uses_.taken(0, 64);
  EXPECT_EQ(streams_.take_said(), "1 waits for 0.1\n");
  uses_.taken(192, 64);
  EXPECT_EQ(streams_.take_said(), "1 waits for 2.1\n");
  uses_.given(64, 128);
  streams_.here = 2;
  uses_.taken(128, 64);  // from the middle of what was left
  uses_.taken(64, 64);
  EXPECT_EQ(streams_.take_said(), "2 waits for 1.1\n2 waits for 1.1\n");
}

TEST_F(LastUsesTest, EveryStreamThatUsedABlockIsWaitedFor) {
  streams_.number = 3;
  uses_.taken(0, 64);
  streams_.here = 1;
  uses_.used(0);
  uses_.used(0);
  streams_.here = 2;  // who gives it back need not have used it
  uses_.given(0, 64);
  uses_.taken(0, 64);
  EXPECT_EQ(streams_.take_said(), "2 waits for 0.1\n2 waits for 1.1\n");
}

TEST_F(LastUsesTest, NobodyWaitsForWorkThatIsDone) {
  streams_.number = 2;
  uses_.taken(0, 64);
  uses_.given(0, 64);
  uses_.forget();
  streams_.here = 1;
  uses_.taken(0, 64);
  EXPECT_EQ(streams_.said, "");
}

// Blocks are given back while errors unwind.
TEST_F(LastUsesTest, WhatCannotBeNotedIsWaitedFor) {
  streams_.number = 2;
  uses_.taken(0, 64);
  streams_.fails = true;
  uses_.given(0, 64);
  EXPECT_EQ(streams_.take_said(), "all is done\n");
  streams_.fails = false;
  streams_.here = 1;
  uses_.taken(0, 64);
  EXPECT_EQ(streams_.take_said(), "");
}

}  // namespace
}  // namespace temper::device
