// Transfers between ranks that are processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "collectives/pairs.h"
#include "tests/support/errors.h"
#include "tests/support/rank_bodies.h"

namespace temper::collectives {
namespace {

Tensor message_of(int64_t count, float value) {
  const Tensor values = Tensor::empty({count}, DType::kF32);
  std::fill_n(values.data<float>(), count, value);
  return values;
}

void expect_all(const Tensor& values, float expected, const std::string& what) {
  for (const float value : values.values<float>())
    if (value != expected) fail("{}: {} found, {} expected", what, value, expected);
}

// Around a ring, both ways at once, small and large, with what is sent written over as soon as that may be;
// then in an order in which only transfers that progress together end; collectives in between.
const bool kTransfers = add_rank_body("transfers", [](Group& group, const std::string&) {
  const int ranks = group.size(), rank = group.rank(), up = (rank + 1) % ranks,
            down = (rank + ranks - 1) % ranks;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{3'000'001}}) {
    const Tensor to_up = message_of(count, static_cast<float>(rank)),
                 to_down = message_of(count, 100.0f + rank), from_down = message_of(count, -1),
                 from_up = message_of(count, -1);
    // Of two ranks both neighbors are one: what goes up is sent, and received, first.
    group.pairs().exchange(std::vector<Transfer>{{"up", to_up, up}, {"down", to_down, down}},
                           std::vector<Transfer>{{"up", from_down, down}, {"down", from_up, up}});
    for (const Tensor& sent : {to_up, to_down})
      std::fill_n(sent.data<float>(), count, std::numeric_limits<float>::quiet_NaN());
    expect_all(from_down, static_cast<float>(down), "from below");
    expect_all(from_up, 100.0f + up, "from above");
    if (group.sum("ranks", 1) != ranks) fail("a sum is wrong");
  }
  const bool is_end = rank == 0 || rank == ranks - 1;
  const auto part = group.part("ends", is_end ? std::vector{0, ranks - 1} : std::vector{rank});
  if (rank == 0) part->pairs().send("in a part", message_of(5, 3), 1);
  if (rank == ranks - 1) {
    const Tensor values = message_of(5, 0);
    part->pairs().receive("in a part", values, 0);
    expect_all(values, 3, "in a part");
  }
  constexpr int64_t kLarge = 500'000;
  const Tensor x = message_of(kLarge, 1), y = message_of(kLarge, 2), z = message_of(kLarge, 3),
               w = message_of(kLarge, 4);
  if (ranks > 2 && rank == 0)
    group.pairs().exchange(std::vector<Transfer>{{"x", x, 1}},
                           std::vector<Transfer>{{"y", y, 2}, {"z", z, 1}});
  if (ranks > 2 && rank == 1) {
    group.pairs().send("z", z, 0);
    group.pairs().send("w", w, 2);
    group.pairs().receive("x", x, 0);
  }
  if (ranks > 2 && rank == 2) {
    group.pairs().receive("w", w, 1);
    group.pairs().send("y", y, 0);
  }
  group.barrier("end");
});

TEST(MpiPairs, TransfersArrive) {
  for (const int ranks : {2, 3, 4}) {
    const RanksOutcome outcome = run_ranks(ranks, "transfers");
    EXPECT_EQ(outcome.code, 0) << outcome.text;
  }
}

// "name", "shape" or "collective", in which rank 0 is.
const bool kOtherTransfer = add_rank_body("transfer_mismatch", [](Group& group, const std::string& which) {
  group.barrier("begin");
  const int64_t count = which == "large" ? 1'000'000 : 4;
  const Tensor values = message_of(count, 1), other = message_of(count / 2, 1);
  if (group.rank() == 0 && which == "collective") group.all_reduce("gradients", values);
  if (group.rank() == 0 && which != "collective")
    group.pairs().send(which == "name" ? "a" : "b", which == "name" ? values : other, 1);
  if (group.rank() == 1) group.pairs().receive("b", values, 0);
  group.barrier("end");
});

TEST(MpiPairs, AnotherTransferOnTheOtherSideIsReportedOnceWithBoth) {
  const auto expect = [](const char* which, const std::string& sent, const std::string& received) {
    const RanksOutcome outcome = run_ranks(3, "transfer_mismatch", which);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.text,
              "temper: rank 1: [collectives] ranks meet in different transfers: rank 0 sends in " + sent +
                  "; rank 1 receives in transfer 1 from rank 0 to rank 1 of " + received +
                  ". Both ranks must make the same transfers in the same order\n");
  };
  const std::string transfer = "transfer 1 from rank 0 to rank 1 of ";
  expect("name", transfer + "'a', float32 [4]", "'b', float32 [4]");
  expect("shape", transfer + "'b', float32 [2]", "'b', float32 [4]");
  expect("large", transfer + "'b', float32 [500000]", "'b', float32 [1000000]");
  expect("collective", "collective 3, all_reduce of 'gradients', float32 [4]", "'b', float32 [4]");
}

// Rank 1 ends, or is held, while rank 0 "sends" to it or "receives" from it.
const bool kPartnerGone = add_rank_body("partner_gone", [](Group& group, const std::string& argument) {
  const auto space = argument.find(' ');
  group.barrier("begin");
  group.set_deadline(group.rank() == 2 ? 60 : 0.5);  // which hears of it, and is not the first one to give up
  if (group.rank() == 1) {
    if (argument.substr(space + 1) == "error") fail("[data] row 7 is bad");
    ::kill(::getpid(), std::stoi(argument.substr(space + 1)));
  }
  const Tensor values = message_of(1'000'000, 1);
  if (group.rank() == 0 && argument.starts_with("sends")) group.pairs().send("x", values, 1);
  if (group.rank() == 0 && argument.starts_with("receives")) group.pairs().receive("x", values, 1);
  group.barrier("end");
});

TEST(MpiPairs, APartnerThatIsGoneIsNamed) {
  for (const std::string how : {"sends", "receives"}) {
    const RanksOutcome held = run_ranks(3, "partner_gone", how + " " + std::to_string(SIGSTOP));
    EXPECT_EQ(held.code, 4);
    EXPECT_LT(held.seconds, 30);
    expect_has(held.text, "rank 1 did not come to transfer 1 from rank ");
    const RanksOutcome killed = run_ranks(3, "partner_gone", how + " " + std::to_string(SIGKILL));
    EXPECT_NE(killed.code, 0);
    EXPECT_LT(killed.seconds, 30);
    const RanksOutcome threw = run_ranks(3, "partner_gone", how + " error");
    EXPECT_EQ(threw.code, 2);
    EXPECT_EQ(threw.text, "temper: rank 1: [data] row 7 is bad\n");
  }
}

}  // namespace
}  // namespace temper::collectives
