#include "collectives/pairs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "collectives/launch.h"
#include "tests/support/errors.h"

namespace temper::collectives {
namespace {

// What each rank's body threw; empty: nothing.
std::vector<std::string> errors_of(const LaunchOptions& options, const Body& body) {
  std::vector<std::string> errors(static_cast<size_t>(options.ranks));
  try {
    launch("threads", options, [&](Group& group) {
      try {
        body(group);
      } catch (const Error& error) {
        errors[static_cast<size_t>(group.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return errors;
}

void come_late(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Tensor filled(int64_t count, float value) {
  const Tensor values = Tensor::empty({count}, DType::kF32);
  std::fill_n(values.data<float>(), count, value);
  return values;
}

// On hosts they are done when the call returns.
TEST(Pairs, TransfersThatAreBegunAreThereAfterTheirWait) {
  const auto errors = errors_of({.ranks = 2}, [](Group& group) {
    const int other = 1 - group.rank();
    const Tensor sent = filled(3, static_cast<float>(5 + group.rank())), received = filled(3, -1);
    const std::vector<Transfer> out{{"x", sent, other}}, in{{"x", received, other}};
    const auto first = group.pairs().begin_exchange(out, in), none = group.pairs().begin_exchange({}, {});
    none->wait();
    first->wait();
    EXPECT_EQ(received.values<float>()[2], static_cast<float>(5 + other));
    group.pairs().exchange(out, in);  // the second one between the two
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Neither another pair nor the rank between them counts or waits.
TEST(Pairs, TransfersArriveInTheirOrderAndDisturbNoCollective) {
  const auto errors = errors_of({.ranks = 3}, [](Group& group) {
    if (group.rank() == 0)
      for (int i = 0; i < 3; ++i) group.pairs().send(fmt::format("x{}", i), filled(2, 10 + i), 2);
    if (group.rank() == 2)
      for (int i = 0; i < 3; ++i) {
        const Tensor values = filled(2, -1);
        group.pairs().receive(fmt::format("x{}", i), values, 0);
        EXPECT_EQ(values.values<float>()[1], 10 + i);
      }
    EXPECT_EQ(group.sum("ranks", group.rank()), 3);
    if (group.rank() == 1) group.pairs().send("y", filled(1, 5), 2);
    const Tensor value = filled(1, 0);
    if (group.rank() == 2) group.pairs().receive("y", value, 1);
    group.all_reduce("values", value);
    EXPECT_EQ(value.item(), 5);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Several for the same rank, also of other dtypes and without elements, arrive as they were sent, while the
// other side asks for them one by one.
TEST(Pairs, AnExchangeIsAsMuchAsItsTransfersOneByOne) {
  const auto errors = errors_of({.ranks = 2}, [](Group& group) {
    const Tensor a = filled(3, 1), b = Tensor::from(std::vector<int32_t>{7, 8}),
                 none = Tensor::empty({0, 4}, DType::kBF16);
    if (group.rank() == 0) {
      group.pairs().exchange(std::vector<Transfer>{{"a", a, 1}, {"none", none, 1}, {"b", b, 1}}, {});
      return;
    }
    const Tensor to_a = filled(3, 0), to_b = Tensor::zeros({2}, DType::kI32);
    group.pairs().receive("a", to_a, 0);
    group.pairs().receive("none", none, 0);
    group.pairs().receive("b", to_b, 0);
    EXPECT_EQ(to_a.values<float>()[2], 1);
    EXPECT_EQ(to_b.values<int32_t>()[1], 8);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Large ones in both directions at once; the sender writes over its memory as soon as it may.
TEST(Pairs, BothRanksMayExchangeAtOnce) {
  constexpr int64_t kCount = int64_t{1} << 21;
  const auto errors = errors_of({.ranks = 2, .deadline = 20}, [](Group& group) {
    const int other = 1 - group.rank();
    for (int i = 0; i < 4; ++i) {
      const Tensor sent = filled(kCount, static_cast<float>(10 * i + group.rank())),
                   received = filled(kCount, -1);
      group.pairs().exchange(std::vector<Transfer>{{"x", sent, other}},
                             std::vector<Transfer>{{"x", received, other}});
      std::fill_n(sent.data<float>(), kCount, std::numeric_limits<float>::quiet_NaN());
      for (int64_t k = 0; k < kCount; ++k)
        ASSERT_EQ(received.data<float>()[k], static_cast<float>(10 * i + other));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Rank 0's first transfer is the last one that can happen: it depends on what the others do behind theirs
// with rank 0.
TEST(Pairs, TransfersOfAnExchangeProgressTogether) {
  const auto errors = errors_of({.ranks = 3, .deadline = 5}, [](Group& group) {
    Pairs& pairs = group.pairs();
    const Tensor x = filled(4, 1), y = filled(4, 2), z = filled(4, 3), w = filled(4, 4);
    if (group.rank() == 0)
      pairs.exchange(std::vector<Transfer>{{"x", x, 1}}, std::vector<Transfer>{{"y", y, 2}, {"z", z, 1}});
    if (group.rank() == 1) {
      pairs.send("z", z, 0);
      pairs.send("w", w, 2);
      pairs.receive("x", x, 0);
    }
    if (group.rank() == 2) {
      pairs.receive("w", w, 1);
      pairs.send("y", y, 0);
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Pairs, RanksThatBothSendFirstAreOneError) {
  const auto errors = errors_of({.ranks = 2, .deadline = 0.05}, [](Group& group) {
    group.pairs().send(group.rank() == 0 ? "up" : "down", filled(2, 1), 1 - group.rank());
  });
  EXPECT_EQ(errors[0], errors[1]);
  expect_has(errors[0], "did not come to transfer 1 from rank ");
  expect_has(errors[0], ", float32 [2] within 0.05 s");
}

TEST(Pairs, AnotherTransferOnTheOtherSideIsAnErrorWithBoth) {
  const auto mismatch = [](const Transfer& sent, const Transfer& received) {
    const auto errors = errors_of({.ranks = 3}, [&](Group& group) {
      if (group.rank() == 0) group.pairs().exchange({&sent, 1}, {});
      if (group.rank() == 1) group.pairs().exchange({}, {&received, 1});
      group.barrier("step");
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_EQ(errors[2], errors[1]) << "a rank that had no part in it";
    return errors[1];
  };
  const Tensor values = filled(6, 1);
  const std::string begin =
                        "[collectives] ranks meet in different transfers: rank 0 sends in transfer 1 from "
                        "rank 0 to rank 1 of ",
                    middle = "; rank 1 receives in transfer 1 from rank 0 to rank 1 of ",
                    end = ". Both ranks must make the same transfers in the same order";
  EXPECT_EQ(mismatch({"a", values, 1}, {"b", values, 0}),
            begin + "'a', float32 [6]" + middle + "'b', float32 [6]" + end);
  EXPECT_EQ(mismatch({"a", values, 1}, {"a", values.reshape({2, 3}), 0}),
            begin + "'a', float32 [6]" + middle + "'a', float32 [2, 3]" + end);
  EXPECT_EQ(mismatch({"a", values, 1}, {"a", Tensor::zeros({6}, DType::kBF16), 0}),
            begin + "'a', float32 [6]" + middle + "'a', bfloat16 [6]" + end);
}

TEST(Pairs, APartnerThatIsGoneIsAnErrorOfAll) {
  const auto run = [](double deadline, const Body& body) {
    return errors_of({.ranks = 3, .deadline = deadline}, body);
  };
  for (const bool waits : {false, true}) {
    const auto ended = run(5, [&](Group& group) {
      if ((group.rank() == 1) == waits) come_late(0.02);
      if (group.rank() == 0) group.pairs().receive("x", filled(2, 0), 1);
    });
    const auto threw = run(5, [&](Group& group) {
      if ((group.rank() == 1) == waits) come_late(0.02);
      if (group.rank() == 1) fail("its rows are torn");
      if (group.rank() == 0) group.pairs().send("x", filled(2, 0), 1);
      if (group.rank() == 2) group.barrier("step");
    });
    EXPECT_EQ(
        ended[0],
        "[collectives] rank 1 has ended, but rank 0 waits for it in transfer 1 from rank 1 to rank 0 of "
        "'x', float32 [2]");
    EXPECT_EQ(threw[0], "[collectives] rank 1 stopped: its rows are torn");
    EXPECT_EQ(threw[2], threw[0]);
  }
  const auto late = run(0.05, [](Group& group) {
    if (group.rank() == 1) come_late(0.5);
    if (group.rank() < 2)
      group.pairs().exchange(std::vector<Transfer>{{"up", filled(2, 0), 1 - group.rank()}},
                             std::vector<Transfer>{{"down", filled(2, 0), 1 - group.rank()}});
  });
  EXPECT_EQ(late[0],
            "[collectives] rank 1 did not come to transfer 1 from rank 1 to rank 0 of 'down', float32 [2] "
            "within 0.05 s");
  EXPECT_EQ(late[1], late[0]);
}

}  // namespace
}  // namespace temper::collectives
