// Ranks that are processes: the same bits as ranks that are threads, and no waiting for those that do not
// come.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/signals/stop_signals.h"
#include "base/text.h"
#include "collectives/at_root.h"
#include "collectives/launch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_bodies.h"

namespace temper::collectives {
namespace {

// Values of a rank that a sum in another order rounds otherwise.
Tensor values_of(int rank, const Shape& shape, DType dtype) {
  Tensor values = Tensor::empty(shape, DType::kF32);
  float* const data = values.data<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    data[i] = static_cast<float>((i * 7919 + rank * 104729) % 10007 - 5000) * (rank % 2 == 0 ? 1e-3f : 3.1f);
  return values.to(dtype);
}

// A hash of all that the collectives give a rank, of tensors that are smaller than the ranks are many, of odd
// sizes and longer than a piece.
std::string results_of(Group& group) {
  uint64_t hash = 1469598103934665603u;
  const auto take = [&](const void* data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  };
  const int64_t ranks = group.size();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{5}, int64_t{300001}}) {
      const Tensor own = values_of(group.rank(), {rows, 2}, dtype);
      const Tensor gathered = group.all_gather("part", own);
      take(gathered.raw(), gathered.bytes());
      const Tensor summed = group.reduce_scatter("whole", values_of(group.rank(), {rows * ranks, 2}, dtype));
      take(summed.raw(), summed.bytes());
      group.all_reduce("values", own);
      take(own.raw(), own.bytes());
      const Tensor sent = values_of(group.rank(), {rows}, dtype);
      group.broadcast("sent", sent, static_cast<int>(ranks) - 1);
      take(sent.raw(), sent.bytes());
      // In place: a rank's part lies in the whole.
      const Tensor whole = values_of(group.rank(), {rows * ranks, 1}, dtype);
      group.reduce_scatter_into("whole", whole, whole.narrow(0, rows * group.rank(), rows));
      group.all_gather_into("parts", whole.narrow(0, rows * group.rank(), rows), whole);
      take(whole.raw(), whole.bytes());
    }
  // Rows of other numbers, some none.
  for (const int64_t most : {int64_t{3}, int64_t{100003}}) {
    std::vector<int64_t> send, receive;
    int64_t rows = 0;
    for (int other = 0; other < group.size(); ++other) {
      send.push_back((group.rank() * 5 + other * 7) % most);
      receive.push_back((other * 5 + group.rank() * 7) % most);
      rows += send.back();
    }
    const Tensor received =
        group.all_to_all("rows", values_of(group.rank(), {rows, 3}, DType::kBF16), send, receive);
    take(received.raw(), received.bytes());
  }
  // Groups of some of them: the halves, and those that have the same place in each.
  if (ranks % 2 == 0) {
    std::vector<int> half, place;
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank * 2 / group.size() == group.rank() * 2 / group.size()) half.push_back(rank);
      if (rank % (group.size() / 2) == group.rank() % (group.size() / 2)) place.push_back(rank);
    }
    const auto halves = group.part("half", half), places = group.part("place", place);
    const Tensor values = values_of(group.rank(), {5, 3}, DType::kF32);
    places->all_reduce("values", values);
    const Tensor all = halves->all_gather("values", values);
    take(all.raw(), all.bytes());
  }
  for (const std::string& object :
       group.gather_objects("objects", std::string(static_cast<size_t>(group.rank() * 70000), 'x')))
    take(object.data(), std::ssize(object));
  return fmt::format("{:x}", hash);
}

// Of all ranks of a run, in their order.
std::vector<std::string> results_of_threads(int ranks) {
  std::vector<std::string> results(static_cast<size_t>(ranks));
  launch("threads", {.ranks = ranks},
         [&](Group& group) { results[static_cast<size_t>(group.rank())] = results_of(group); });
  return results;
}

const bool kSums = add_rank_body("results", [](Group& group, const std::string&) {
  const std::vector<std::string> all = group.gather_objects("results", results_of(group));
  if (group.rank() == 0) std::printf("%s\n", join(all).c_str());
});

class Mpi : public testing::TestWithParam<int> {};

TEST_P(Mpi, GivesTheBitsOfThreads) {
  const RanksOutcome outcome = run_ranks(GetParam(), "results");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(outcome.text, join(results_of_threads(GetParam())) + "\n");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, testing::Values(2, 3, 4, 8), testing::PrintToStringParamName());

const bool kMismatch = add_rank_body("mismatch", [](Group& group, const std::string&) {
  const Tensor values = Tensor::zeros({4, group.rank() == 1 ? 3 : 2}, DType::kF32);
  group.all_reduce("gradients", values);
});

TEST(Mpi, RanksInDifferentCallsGetBothOnce) {
  const RanksOutcome outcome = run_ranks(3, "mismatch");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.text,
            "temper: [collectives] ranks meet in different calls: rank 0 in collective 2, all_reduce of "
            "'gradients', float32 [4, 2]; rank 1 in collective 2, all_reduce of 'gradients', float32 [4, 3]. "
            "All ranks must make the same calls in the same order\n");
}

const bool kError = add_rank_body("error", [](Group& group, const std::string&) {
  group.barrier("begin");
  if (group.rank() == 1) fail("[data] row 7 is bad");
  group.barrier("end");
});

TEST(Mpi, AnErrorIsReportedByTheRankThatHasIt) {
  const RanksOutcome outcome = run_ranks(3, "error");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.text, "temper: rank 1: [data] row 7 is bad\n");
}

const bool kSameError = add_rank_body("same_error", [](Group& group, const std::string&) {
  group.barrier("begin");
  fail("[train.steps] is -1");
});

TEST(Mpi, AnErrorOfAllRanksIsReportedOnce) {
  const RanksOutcome outcome = run_ranks(4, "same_error");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.text, "temper: [train.steps] is -1\n");
}

const bool kFailure = add_rank_body("failure", [](Group& group, const std::string& where) {
  const Tensor values = Tensor::zeros({4, 2}, DType::kF32);
  const auto part = group.part("shard", {0, 1, 2});
  at_each(group, "what begins", [&] {
    if (group.rank() == 1) fail_resources("[adapter] out of memory");
    if (where == "elsewhere") group.all_reduce("gradients", values);
    if (where == "part") part->all_reduce("gradients", values);
  });
});

// Also where the others wait in the call that it left out.
TEST(Mpi, AFailureIsHeardInAnotherCall) {
  for (const char* where : {"there", "elsewhere"}) {
    const RanksOutcome outcome = run_ranks(3, "failure", where);
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.text, "temper: rank 1: [adapter] out of memory\n");
  }
}

// Rank 1 ends in the collective of this name, or is held there.
const bool kSignal = add_rank_body("signal", [](Group& group, const std::string& argument) {
  const int64_t space = static_cast<int64_t>(argument.find(' '));
  const std::string where = argument.substr(0, static_cast<size_t>(space));
  const int signal = std::stoi(argument.substr(static_cast<size_t>(space) + 1));
  const auto reach = [&](const std::string& name) {
    if (name == where && group.rank() == 1) ::kill(::getpid(), signal);
  };
  const Tensor values = Tensor::zeros({12, 2}, DType::kF32);
  group.barrier("begin");
  group.set_deadline(0.5);
  for (int i = 0; i < 3; ++i) {
    reach("all_reduce");
    group.all_reduce("gradients", values);
    reach("all_gather");
    group.all_gather("parameters", values);
    reach("reduce_scatter");
    group.reduce_scatter("gradients", values);
    reach("broadcast");
    group.broadcast("rows", values, 1);
    reach("all_to_all");
    const std::vector<int64_t> four(3, 4);
    if (group.size() == 3) group.all_to_all("tokens", values, four, four);
    reach("gather_objects");
    group.gather_objects("counts", "x");
    reach("barrier");
    group.barrier("saved");
  }
});

TEST(Mpi, ARankThatIsKilledEndsAll) {
  for (const char* where : {"all_reduce", "barrier"}) {
    const RanksOutcome outcome = run_ranks(4, "signal", fmt::format("{} {}", where, SIGKILL));
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_LT(outcome.seconds, 10);
    expect_has(outcome.text, "temper: rank 1 (process ");
    expect_has(outcome.text, ") was ended by signal 9");
  }
}

void expect_hanging_rank_named(std::initializer_list<const char*> collectives) {
  for (const char* where : collectives) {
    const RanksOutcome outcome = run_ranks(3, "signal", fmt::format("{} {}", where, SIGSTOP));
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_LT(outcome.seconds, 10);
    expect_has(outcome.text, "rank 1 did not come to collective ");
    expect_has(outcome.text, where);
    expect_has(outcome.text, "in group world (ranks 0, 1, 2)");
  }
}

TEST(Mpi, ARankThatHangsIsNamed) {
  expect_hanging_rank_named({"all_reduce", "all_to_all", "gather_objects"});
}

const bool kAsked = add_rank_body("asked", [](Group& group, const std::string&) {
  const StopSignals signals;
  group.barrier("begin");
  if (group.rank() == 0)
    ::raise(SIGTERM);
  else
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  group.barrier("saved");
});

// A launcher that has lost a rank asks the others to stop, and kills them soon after.
TEST(Mpi, ARankThatIsAskedToStopSaysForWhomItWaits) {
  const RanksOutcome outcome = run_ranks(2, "asked");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  expect_has(outcome.text, "a signal came while rank 1 is awaited in collective ");
  expect_has(outcome.text, "barrier of 'saved'");
}

// Rank 1 holds rank 0 in a broadcast of the rank named, gives up, and lets it go on.
const bool kHeld = add_rank_body("held", [](Group& group, const std::string& root) {
  const pid_t held = std::stoi(group.gather_objects("processes", std::to_string(::getpid()))[0]);
  const Tensor values = values_of(group.rank(), {1 << 20}, DType::kF32),
               sent = values_of(1, {1 << 20}, DType::kF32);
  group.barrier("begin");
  if (group.rank() == 0) {
    group.broadcast("rows", values, std::stoi(root));
    if (std::memcmp(values.raw(), sent.raw(), static_cast<size_t>(sent.bytes())) == 0)
      std::puts("rank 0 has the rows of rank 1");
    std::fflush(stdout);
    group.barrier("saved");
    return;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // rank 0 waits for this one in the broadcast
  ::kill(held, SIGSTOP);
  group.set_deadline(1);
  try {
    group.broadcast("rows", values, std::stoi(root));
  } catch (const GroupBroken&) {
    std::puts(values.shares_storage() ? "the memory of the rows is kept" : "the memory of the rows is free");
    std::fflush(stdout);
    ::kill(held, SIGCONT);
    throw;
  }
});

// The other rank may still read what was sent to it: that memory is kept until the process ends. A receive is
// called back.
TEST(Mpi, MessagesUnderWayDoNotOutliveTheirMemory) {
  const RanksOutcome sent = run_ranks(2, "held", "1");
  EXPECT_EQ(sent.code, 4);
  expect_has(sent.text, "the memory of the rows is kept");
  expect_has(sent.text, "rank 0 has the rows of rank 1");
  const RanksOutcome received = run_ranks(2, "held", "0");
  EXPECT_EQ(received.code, 4);
  expect_has(received.text, "the memory of the rows is free");
}

// They do not meet this rank at all, and hear of it when it has waited for them for a while.
TEST(NightlyMpi, AFailureIsHeardInAPart) {
  const RanksOutcome outcome = run_ranks(3, "failure", "part");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_LT(outcome.seconds, kFailureWaits + 15);
  EXPECT_EQ(outcome.text, "temper: rank 1: [adapter] out of memory\n");
}

TEST(NightlyMpi, ARankThatHangsInAnyCollectiveIsNamed) {
  expect_hanging_rank_named({"all_gather", "reduce_scatter", "broadcast", "barrier"});
}

}  // namespace
}  // namespace temper::collectives
