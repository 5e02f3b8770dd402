#include "collectives/group.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "collectives/hosts.h"
#include "collectives/kept_errors.h"
#include "collectives/launch.h"
#include "tests/support/errors.h"

namespace temper::collectives {
namespace {

// What each rank's body threw, and what the launch did.
struct Outcome {
  std::vector<std::string> ranks;
  std::string launch;
};

Outcome run(const LaunchOptions& options, const Body& body) {
  Outcome outcome;
  outcome.ranks.resize(static_cast<size_t>(options.ranks));
  try {
    launch("threads", options, [&](Group& group) {
      try {
        body(group);
      } catch (const Error& error) {
        outcome.ranks[static_cast<size_t>(group.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error& error) {
    outcome.launch = error.what();
  }
  return outcome;
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Tensor values_of(int rank) {
  Tensor values = Tensor::zeros({5, 3}, DType::kF32);
  for (int64_t i = 0; i < 15; ++i)
    values.data<float>()[i] = 1e-7f * static_cast<float>(i * i) + static_cast<float>(rank) * 0.3f;
  return values;
}

TEST(Hosts, OfRanksAreInMessagesWhereThereAreSeveral) {
  EXPECT_EQ(with_host(1), "1");
  set_hosts({"node1", "node2"});
  EXPECT_EQ(with_host(1), "1 (on node2)");
  set_hosts({});
}

TEST(Alone, GivesBackWhatItWasGiven) {
  launch("local", {}, [](Group& group) {
    EXPECT_EQ(group.size(), 1);
    const Tensor values = values_of(1);
    group.all_reduce("a", values);
    group.broadcast("b", values, 0);
    EXPECT_EQ(group.all_gather("c", values).raw(), values.raw()) << "not a copy";
    EXPECT_EQ(group.reduce_scatter("d", values).raw(), values.raw());
    EXPECT_EQ(values.data<float>()[3], values_of(1).data<float>()[3]);
    EXPECT_EQ(group.sum("e", 2.5), 2.5);
    EXPECT_EQ(group.gather_objects("f", "x"), std::vector<std::string>{"x"});
    group.barrier("g");
  });
  EXPECT_THROW(launch("local", {.ranks = 2}, [](Group&) {}), Error);
}

// In the order of the ranks, whoever comes last, and the same bits everywhere.
TEST(Threads, SumInTheOrderOfRanks) {
  Tensor expected = values_of(0);
  for (const int rank : {1, 2})
    for (int64_t i = 0; i < 15; ++i) expected.data<float>()[i] += values_of(rank).data<float>()[i];
  for (const int last : {0, 1, 2}) {
    std::mutex mutex;
    int checked = 0;
    launch("threads", {.ranks = 3}, [&](Group& group) {
      if (group.rank() == last) sleep_for(0.01);
      const Tensor values = values_of(group.rank());
      group.all_reduce("values", values);
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(values.data<float>()[i], expected.data<float>()[i]);
      ++checked;
    });
    EXPECT_EQ(checked, 3);
  }
}

// Long tensors are summed piece by piece.
TEST(Threads, EveryElementOfManyIsSummed) {
  constexpr int64_t kCount = 6000;
  std::mutex mutex;
  launch("threads", {.ranks = 2}, [&](Group& group) {
    const Tensor values = Tensor::empty({kCount}, DType::kF32, MemoryTag::kWorkspace);
    for (int64_t i = 0; i < kCount; ++i) values.data<float>()[i] = static_cast<float>(i << group.rank());
    const Tensor part = group.reduce_scatter("part", values);
    group.all_reduce("values", values);
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(values.data<float>()[i], static_cast<float>(3 * i));
    for (int64_t i = 0; i < part.numel(); ++i)
      ASSERT_EQ(part.data<float>()[i], static_cast<float>(3 * (group.rank() * part.numel() + i)));
  });
}

TEST(Threads, NarrowNumbersAreRoundedOnce) {
  std::mutex mutex;
  launch("threads", {.ranks = 4}, [&](Group& group) {
    const std::vector<float> parts{1, 0.00390625f, 0.00390625f, 0.00390625f};  // half a step of bfloat16 at 1
    const Tensor value = Tensor::from(std::vector{parts[static_cast<size_t>(group.rank())]}).to(DType::kBF16);
    group.all_reduce("value", value);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(value.to(DType::kF32).item(), static_cast<float>(BFloat16(1 + 3 * 0.00390625f)));
  });
}

// The sum of many ranks' bfloat16 is that of float32 within one unit of its last place.
TEST(Threads, NarrowNumbersOfManyRanksAreSummedInFloat32) {
  constexpr int kRanks = 64;
  constexpr int64_t kCount = 256;
  const auto of = [](int rank, int64_t i) {
    const auto random = static_cast<uint32_t>(rank * 7919 + i * 104729) * 2654435761U;
    return BFloat16(1 + static_cast<float>(random >> 8) / (1 << 24));
  };
  std::mutex mutex;
  launch("threads", {.ranks = kRanks}, [&](Group& group) {
    const Tensor values = Tensor::empty({kCount}, DType::kBF16, MemoryTag::kWorkspace);
    for (int64_t i = 0; i < kCount; ++i) values.data<BFloat16>()[i] = of(group.rank(), i);
    const Tensor part = group.reduce_scatter("parts", values);
    group.all_reduce("values", values);
    const std::lock_guard lock(mutex);
    for (int64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int rank = 0; rank < kRanks; ++rank) sum += static_cast<float>(of(rank, i));
      const double unit = std::ldexp(1.0, std::ilogb(sum) - 7);
      EXPECT_NEAR(static_cast<float>(values.data<BFloat16>()[i]), sum, unit);
      if (i / part.numel() != group.rank()) continue;
      EXPECT_EQ(part.data<BFloat16>()[i % part.numel()].bits, values.data<BFloat16>()[i].bits);
    }
  });
}

TEST(Threads, GatherScatterAndBroadcast) {
  std::mutex mutex;
  launch("threads", {.ranks = 2}, [&](Group& group) {
    const float mine = static_cast<float>(group.rank() + 1);
    const Tensor whole = group.all_gather("parts", Tensor::from(std::vector{mine, 10 * mine}));
    const Tensor part =
        group.reduce_scatter("sums", Tensor::from(std::vector{mine, 2 * mine, 3 * mine, 4 * mine}));
    const Tensor same = Tensor::from(std::vector{mine});
    group.broadcast("same", same, 1);
    int64_t ranks[2] = {group.rank(), 5};
    group.sum<int64_t>("ranks", ranks);
    const std::vector<int> all = group.gather("all", group.rank() * 7);
    const std::vector<std::string> objects =
        group.gather_objects("objects", std::string(static_cast<size_t>(group.rank()), 'x'));
    const std::string object = group.broadcast_object("object", std::to_string(group.rank()), 1);
    group.barrier("end");
    const std::lock_guard lock(mutex);
    EXPECT_EQ(std::vector(whole.values<float>().begin(), whole.values<float>().end()),
              (std::vector<float>{1, 10, 2, 20}));
    const auto own = part.values<float>();
    EXPECT_EQ(std::vector(own.begin(), own.end()),
              (group.rank() == 0 ? std::vector<float>{3, 6} : std::vector<float>{9, 12}));
    EXPECT_EQ(same.item(), 2);
    EXPECT_EQ(ranks[0], 1);
    EXPECT_EQ(ranks[1], 10);
    EXPECT_EQ(all, (std::vector<int>{0, 7}));
    EXPECT_EQ(objects, (std::vector<std::string>{"", "x"}));
    EXPECT_EQ(object, "1");
  });
}

// Rank r sends (r + 2 s) % 3 rows to rank s, some none.
TEST(Threads, RowsGoToTheRanksThatTheyAreFor) {
  const auto count = [](int from, int to) { return int64_t{(from + 2 * to) % 3}; };
  const auto row = [](int from, int to, int64_t i) {
    return static_cast<float>(16 * from + 4 * to) + static_cast<float>(i);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    std::mutex mutex;
    launch("threads", {.ranks = 4}, [&](Group& group) {
      std::vector<float> sent, expected;
      std::vector<int64_t> send, receive;
      for (int other = 0; other < 4; ++other) {
        send.push_back(count(group.rank(), other));
        receive.push_back(count(other, group.rank()));
        for (int64_t i = 0; i < send.back(); ++i)
          for (int k = 0; k < 2; ++k) sent.push_back(row(group.rank(), other, i));
        for (int64_t i = 0; i < receive.back(); ++i)
          for (int k = 0; k < 2; ++k) expected.push_back(row(other, group.rank(), i));
      }
      Tensor rows = Tensor::from(std::span<const float>(sent), {static_cast<int64_t>(sent.size() / 2), 2});
      if (dtype == DType::kI32) {
        std::vector<int32_t> integers(sent.begin(), sent.end());
        rows = Tensor::from(std::span<const int32_t>(integers), rows.shape());
      } else {
        rows = rows.to(dtype);
      }
      const Tensor found = group.all_to_all("rows", rows, send, receive);
      const std::lock_guard lock(mutex);
      std::vector<float> values;
      if (dtype == DType::kI32)
        values.assign(found.values<int32_t>().begin(), found.values<int32_t>().end());
      else
        for (const float value : found.to(DType::kF32).values<float>()) values.push_back(value);
      EXPECT_EQ(values, expected);
    });
  }
}

TEST(Threads, RowsThatNobodyExpectsAreAnError) {
  const Outcome found = run({.ranks = 2}, [](Group& group) {
    const int64_t send[] = {2, 3}, receive[] = {group.rank() == 0 ? 2 : 3, group.rank() == 0 ? 1 : 3};
    group.all_to_all("rows", values_of(0), send, receive);
  });
  EXPECT_NE(found.launch.find(
                "collective 1, all_to_all of 'rows', float32 [1, 3]: rank 1 sends 2 rows, expected 1"),
            std::string::npos)
      << found.launch;
}

TEST(Threads, DifferentCallsAreOneErrorOnEveryRank) {
  const auto mismatch = [](const Body& body) {
    const Outcome found = run({.ranks = 2}, body);
    EXPECT_EQ(found.ranks[0], found.ranks[1]);
    EXPECT_EQ(found.launch, found.ranks[0]);
    return found.launch;
  };
  const std::string rest = ". All ranks must make the same calls in the same order";
  EXPECT_EQ(
      mismatch([](Group& group) {
        group.barrier("start");
        group.rank() == 0 ? group.barrier("step") : group.all_reduce("gradients", values_of(1));
      }),
      "[collectives] ranks meet in different calls: rank 0 in collective 2, barrier of 'step'; rank 1 in "
      "collective 2, all_reduce of 'gradients', float32 [5, 3]" +
          rest);
  EXPECT_EQ(mismatch([](Group& group) {
              const Tensor values = values_of(0);
              group.all_reduce("gradients", group.rank() == 0 ? values : values.reshape({3, 5}));
            }),
            "[collectives] ranks meet in different calls: rank 0 in collective 1, all_reduce of 'gradients', "
            "float32 "
            "[5, 3]; rank 1 in collective 1, all_reduce of 'gradients', float32 [3, 5]" +
                rest);
  EXPECT_NE(
      mismatch([](Group& group) { group.broadcast("x", values_of(0), group.rank()); }).find("from rank 1"),
      std::string::npos);
}

TEST(Threads, ARankThatThrowsStopsTheOthers) {
  for (const bool waits : {false, true}) {
    const Outcome found = run({.ranks = 3}, [&](Group& group) {
      if (group.rank() == 1) {
        if (waits) sleep_for(0.02);
        throw Error("its rows are torn");
      }
      if (!waits) sleep_for(0.02);
      group.barrier("step");
    });
    EXPECT_EQ(found.launch, "its rows are torn");
    EXPECT_EQ(found.ranks[0], "[collectives] rank 1 stopped: its rows are torn");
    EXPECT_EQ(found.ranks[2], found.ranks[0]);
  }
}

// What one rank meets with alone, and they all know at the meeting: they are in step, and meet again.
TEST(KeptErrors, AreThrownOnAllRanksAtTheirMeeting) {
  const Outcome outcome = run({.ranks = 3}, [](Group& group) {
    KeptErrors kept(group);
    int done = 0;
    const auto work = [&] {
      if (++done == 2) fail_resources("[metrics.jsonl] cannot write");
    };
    for (int i = 0; i < 4; ++i) {
      if (group.rank() > 0) kept.attempt(work);
      group.barrier("an update");
    }
    EXPECT_EQ(done, group.rank() > 0 ? 2 : 0) << "nothing is done behind an error";
    EXPECT_EQ(group.sum("ranks in trouble", kept.any() ? 1 : 0), 2);
    try {
      kept.raise("work");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(is_of_all(group, error));
      EXPECT_EQ(error.kind(), ErrorKind::kResources);
      EXPECT_STREQ(error.what(), "rank 1: [metrics.jsonl] cannot write");
    }
    group.barrier("they meet again");
    EXPECT_FALSE(kept.any());
    kept.raise("nothing");
  });
  EXPECT_EQ(outcome.launch, "");
}

TEST(KeptErrors, OfARankThatIsAloneAreThrownAtOnce) {
  launch("local", {}, [](Group& group) {
    KeptErrors kept(group);
    EXPECT_THROW(kept.at_root([](const Root&) { fail("[a] is bad"); }), Error);
    EXPECT_FALSE(kept.any());
  });
}

TEST(KeptErrors, OfOneRankAreNotOfAll) {
  run({.ranks = 2}, [](Group& group) {
    EXPECT_FALSE(is_of_all(group, Error("[a] is bad")));
    EXPECT_FALSE(is_of_all(group, ErrorOfAll("[a] is bad", ErrorKind::kInput, 3))) << "of another group";
    EXPECT_TRUE(is_of_all(group, ErrorOfAll("[a] is bad", ErrorKind::kInput, 2)));
  });
}

// A rank that fails before it meets the others, which wait in the call that it left out: they hear the
// reason, and not that calls differ.
TEST(Threads, AFailureIsHeardInAnotherCall) {
  const Outcome outcome = run({.ranks = 3}, [](Group& group) {
    at_each(group, "what begins", [&] {
      if (group.rank() == 1) fail("[adapter_config.json] no such file");
      group.barrier("read");
    });
  });
  for (const std::string& error : outcome.ranks)
    EXPECT_EQ(error, "[collectives] rank 1 stopped: [adapter_config.json] no such file");
}

TEST(Threads, ARankThatIsLateIsOneErrorOnEveryRank) {
  const Outcome found = run({.ranks = 3, .deadline = 0.05}, [&](Group& group) {
    if (group.rank() == 2) sleep_for(0.5);
    group.barrier("step");
  });
  EXPECT_EQ(found.launch,
            "[collectives] rank 2 did not come to collective 1, barrier of 'step' within 0.05 s");
  for (const std::string& rank : found.ranks) EXPECT_EQ(rank, found.launch);
}

// Also of one that is set when the parts are there, and in a part of a part.
TEST(Threads, PartsShareTheDeadlineOfTheWhole) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run({.ranks = 4}, [](Group& group) {
    const std::vector<int> halves = group.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3};
    const auto half = group.part("half", halves);
    const auto both = half->part("both", {0, 1});
    group.set_deadline(0.2);
    EXPECT_EQ(both->deadline(), 0.2);
    if (group.rank() == 3) sleep_for(1);
    both->all_reduce("sums", values_of(0));
  });
  expect_has(outcome.launch,
             "did not come to collective 1, all_reduce of 'sums', float32 [5, 3] within 0.2 s");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Threads, ARankThatHasEndedIsAnError) {
  for (const bool waits : {false, true}) {
    const Outcome found = run({.ranks = 2}, [&](Group& group) {
      if ((group.rank() == 1) == waits) sleep_for(0.02);
      if (group.rank() == 0) group.barrier("step");
    });
    EXPECT_EQ(found.launch,
              "[collectives] rank 1 has ended, but rank 0 waits for it in collective 1, barrier of 'step'");
  }
}

TEST(Threads, AfterAnErrorAGroupIsOfNoUse) {
  const Outcome found = run({.ranks = 2}, [](Group& group) {
    EXPECT_THROW(group.barrier(group.rank() == 0 ? "a" : "b"), Error);
    group.barrier("c");
  });
  EXPECT_NE(found.launch.find("different calls"), std::string::npos);
}

}  // namespace
}  // namespace temper::collectives
