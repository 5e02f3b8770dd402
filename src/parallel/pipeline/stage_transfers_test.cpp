// A stage waits for what it needs and for what came before it, and for nothing else.
#include "parallel/pipeline/stage_transfers.h"

#include <gtest/gtest.h>

#include "collectives/group.h"
#include "collectives/local/local.h"

namespace temper::parallel {
namespace {

using collectives::PairCalls;
using collectives::TransfersUnderWay;

// Notes which of its transfers were waited for, in order.
class NotedPairs final : public collectives::Pairs {
 public:
  explicit NotedPairs(const collectives::Group& group) : Pairs(group) {}
  std::vector<int> waited;

 private:
  class Noted final : public TransfersUnderWay {
   public:
    Noted(std::vector<int>& waited, int number) : waited_(waited), number_(number) {}
    void wait() override { waited_.push_back(number_); }

   private:
    std::vector<int>& waited_;
    int number_;
  };

  void do_exchange(const PairCalls&) override { ADD_FAILURE() << "waits for both ranks"; }
  std::unique_ptr<TransfersUnderWay> do_begin(const PairCalls&) override {
    return std::make_unique<Noted>(waited, ++begun_);
  }
  int begun_ = 0;
};

TEST(StageTransfers, AreWaitedForInTheirOrder) {
  const std::unique_ptr<collectives::Group> two = collectives::planned_group(2);
  NotedPairs pairs(*two);
  StageTransfers transfers(pairs);
  const Tensor tensor = Tensor::zeros({1}, DType::kF32);
  const collectives::Transfer one{"x", tensor, 1 - two->rank()};
  const auto begin = [&] { return transfers.begin({&one, 1}, {}); };
  EXPECT_TRUE(transfers.is_done(0)) << "before the first one";
  for (int64_t i = 1; i <= StageTransfers::kMostUnderWay; ++i) EXPECT_EQ(begin(), i);
  EXPECT_TRUE(pairs.waited.empty());
  EXPECT_FALSE(transfers.is_done(1));
  begin();
  EXPECT_EQ(pairs.waited, std::vector{1}) << "as many are under way as may be";
  transfers.wait_for(3);
  EXPECT_EQ(pairs.waited, (std::vector{1, 2, 3}));
  EXPECT_TRUE(transfers.is_done(3));
  EXPECT_FALSE(transfers.is_done(4));
  transfers.wait_for(2);
  transfers.wait_for(transfers.last());
  EXPECT_EQ(pairs.waited, (std::vector{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace temper::parallel
