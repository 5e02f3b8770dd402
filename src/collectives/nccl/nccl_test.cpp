// Ranks with a GPU each: sums as the ranks' hosts form them, and no waiting for a GPU whose rank does not
// come.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "collectives/device_group.h"
#include "device/facts.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"
#include "tests/support/rank_bodies.h"

namespace temper::collectives {
namespace {

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(2); !why.empty()) GTEST_SKIP() << why;
  }
};

Device own_gpu(const Group& hosts) { return {DeviceType::kCuda, hosts.on_machine().place}; }

Tensor values_of(int rank, const Shape& shape, DType dtype) {
  Tensor values = Tensor::empty(shape, DType::kF32);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = static_cast<float>((i * 7919 + rank * 104729) % 10007 - 5000) * 3.1e-3f;
  return values.to(dtype);
}

void expect_same(const Tensor& found, const Tensor& expected, const char* what) {
  const Tensor here = found.on({});
  if (std::memcmp(here.raw(), expected.raw(), static_cast<size_t>(expected.bytes())) != 0)
    fail("{} of {} differs from the hosts'", what, to_string(expected.shape()));
}

// Two values have one sum, whatever the order.
const bool kResults = add_rank_body("gpu_results", [](Group& hosts, const std::string& checks) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu);
  group->set_checks(checks == "checks");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t rows : {int64_t{2}, int64_t{6}, int64_t{300002}}) {
      const Tensor own = values_of(hosts.rank(), {rows, 3}, dtype);
      expect_same(group->all_gather("part", own.on(gpu)), hosts.all_gather("part", own), "all_gather");
      expect_same(group->reduce_scatter("whole", own.on(gpu)), hosts.reduce_scatter("whole", own),
                  "reduce_scatter");
      Tensor sent = own.clone(), sent_on_gpu = own.on(gpu);
      group->broadcast("sent", sent_on_gpu, 1);
      hosts.broadcast("sent", sent, 1);
      expect_same(sent_on_gpu, sent, "broadcast");
      const std::vector<int64_t> send{rows / 2 - 1, rows / 2 + 1},
          receive(2, hosts.rank() == 0 ? rows / 2 - 1 : rows / 2 + 1);
      expect_same(group->all_to_all("rows", own.on(gpu), send, receive),
                  hosts.all_to_all("rows", own, send, receive), "all_to_all");
      // Overlapped with the device's work and several in one launch, in place.
      const Tensor there = own.on(gpu), also_there = own.on(gpu);
      group->begin_overlap();
      {
        const Together together(*group);
        group->all_reduce("values", there);
        group->all_reduce("values", also_there);
      }
      group->end_overlap();
      hosts.all_reduce("values", own);
      expect_same(there, own, "all_reduce");
      expect_same(also_there, own, "all_reduce");
    }
  // After disconnect() it connects again and computes the same; a second disconnect() does nothing.
  const Tensor own = values_of(hosts.rank(), {64, 3}, DType::kF32), there = own.on(gpu);
  group->disconnect();
  group->disconnect();
  group->all_reduce("after a new start", there);
  hosts.all_reduce("after a new start", own);
  expect_same(there, own, "all_reduce");
  const auto part = group->part("alone", {hosts.rank()});
  if (part->size() != 1) fail("a part has {} ranks", part->size());
});

TEST_F(Nccl, GivesWhatTheHostsGive) {
  for (const char* checks : {"", "checks"}) {
    const RanksOutcome outcome = run_ranks(2, "gpu_results", checks);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
  }
}

// Numbers that differ much, so that rounding after each addition is not rounding the sum.
Tensor narrow_values_of(int rank, int64_t count, DType dtype) {
  const Tensor values = Tensor::empty({count}, DType::kF32);
  for (int64_t i = 0; i < count; ++i)
    values.data<float>()[i] = static_cast<float>((i * 7919 + rank * 104729) % 10007 - 5000) *
                              ((i + rank) % 3 == 0 ? 3.1e-3f : 1e-5f);
  return values.to(dtype);
}

// Sums are formed in float32, in the order of the ranks, and rounded once, as the hosts form them: of small
// and of large tensors, whose parts are of unlike lengths, at addresses of any kind, alone, together and
// overlapped.
const bool kNarrow = add_rank_body("gpu_narrow_sums", [](Group& hosts, const std::string&) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu);
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t count :
         {int64_t{1}, int64_t{7}, int64_t{4096}, int64_t{65'537}, int64_t{1'000'003}, int64_t{40'000'001}}) {
      const Tensor own = narrow_values_of(hosts.rank(), count, dtype), summed = own.clone();
      hosts.all_reduce("numbers", summed);
      const Tensor there = own.on(gpu);
      group->all_reduce("numbers", there);
      expect_same(there, summed, "all_reduce");
      // Behind one element: addresses that are no multiples of 16 bytes.
      const Tensor room = Tensor::empty({count + 1}, dtype, MemoryTag::kWorkspace, gpu),
                   odd = room.narrow(0, 1, count);
      odd.copy_from(own);
      const Tensor also = own.on(gpu), wide = own.to(DType::kF32), wide_there = wide.on(gpu);
      group->begin_overlap();
      {
        const Together together(*group);
        group->all_reduce("numbers", odd);
        group->all_reduce("float32", wide_there);
        group->all_reduce("numbers", also);
      }
      group->end_overlap();
      expect_same(odd.clone(), summed, "all_reduce of an odd address");
      expect_same(also, summed, "all_reduce");
      const int64_t each = count / hosts.size() + 1, all = each * hosts.size();
      const Tensor parts = narrow_values_of(hosts.rank() + 9, all, dtype), whole = parts.on(gpu);
      const Tensor expected = hosts.reduce_scatter("parts", parts);
      expect_same(group->reduce_scatter("parts", whole), expected, "reduce_scatter");
      const Tensor mine = whole.narrow(0, each * hosts.rank(), each);  // its own rows of the whole
      group->reduce_scatter_into("parts", whole, mine);
      expect_same(mine.clone(), expected, "reduce_scatter in place");
    }
  // After disconnect() it allocates its memory again.
  group->disconnect();
  const Tensor own = narrow_values_of(hosts.rank(), 4096, DType::kBF16), there = own.on(gpu);
  group->all_reduce("after a new start", there);
  hosts.all_reduce("after a new start", own);
  expect_same(there, own, "all_reduce");
});

TEST_F(Nccl, NarrowNumbersAreSummedInFloat32AndRoundedOnce) {
  const RanksOutcome outcome = run_ranks(2, "gpu_narrow_sums");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
}

// Of two ranks one rounding is all there is; of more, NCCL itself rounds after each addition.
TEST_F(Nccl, NarrowNumbersOfManyRanksAreRoundedOnce) {
  if (const std::string why = why_no_gpu(3); !why.empty()) GTEST_SKIP() << why;
  for (const int ranks : {3, 4, 8}) {
    if (!why_no_gpu(ranks).empty()) break;
    const RanksOutcome outcome = run_ranks(ranks, "gpu_narrow_sums");
    EXPECT_EQ(outcome.code, 0) << ranks << " ranks: " << outcome.text;
  }
}

// A gibibyte of gradients: in float32 NCCL sums it, in as many bytes and in as much time as it would
// bfloat16.
const bool kSpeed = add_rank_body("gpu_sum_speed", [](Group& hosts, const std::string&) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu);
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int kTimes = 10;
  double seconds[2] = {};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor values = Tensor::zeros({kBytes / size_of(dtype)}, dtype).on(gpu);
    for (int i = 0; i < 2; ++i) group->all_reduce("warm", values);
    values.narrow(0, 0, 1).on({});
    hosts.barrier("start");
    const double start = seconds_now();
    for (int i = 0; i < kTimes; ++i) group->all_reduce("gradients", values);
    values.narrow(0, 0, 1).on({});
    hosts.barrier("end");
    seconds[dtype == DType::kBF16 ? 1 : 0] = (seconds_now() - start) / kTimes;
  }
  if (hosts.rank() == 0)
    fmt::print(
        "sums of 1 GiB over {} ranks: float32 by NCCL {:.2f} ms, bfloat16 in float32 and rounded once {:.2f} "
        "ms ({:.2f} times)\n",
        hosts.size(), 1e3 * seconds[0], 1e3 * seconds[1], seconds[1] / seconds[0]);
  if (seconds[1] > 2 * seconds[0])
    fail("sums of bfloat16 take more than twice NCCL's time for as many bytes");
});

TEST_F(Nccl, SumsOfAGibibyteInBfloat16TakeLittleMoreThanNcclsOwn) {
  const RanksOutcome outcome = run_ranks(2, "gpu_sum_speed");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  std::fputs(outcome.text.c_str(), stdout);
}

// Both ways at once, alone, overlapped with work that writes over what the sender has let go, and begun
// before such work; then again after disconnect(). "checks" compares the calls.
const bool kPairs = add_rank_body("gpu_pairs", [](Group& hosts, const std::string& checks) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu);
  group->set_checks(checks == "checks");
  const int ranks = hosts.size(), up = (hosts.rank() + 1) % ranks, down = (hosts.rank() + ranks - 1) % ranks;
  std::vector<int> partners{up};
  if (down != up) partners.push_back(down);
  for (int round = 0; round < 2; ++round) {
    group->pairs().connect(partners);
    for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{5'000'000}}) {
      const auto values = [&](int rank) { return values_of(rank + round, {count}, DType::kBF16); };
      const Tensor from_down = Tensor::zeros({count}, DType::kBF16).on(gpu), from_up = from_down.clone();
      for (const std::string_view way : {"alone", "overlapped", "begun"}) {
        from_down.fill_zero();
        from_up.fill_zero();
        std::unique_ptr<TransfersUnderWay> begun;
        if (way == "overlapped") group->begin_overlap();
        {
          const Tensor sent = values(hosts.rank()).on(gpu), also_sent = values(hosts.rank() + 100).on(gpu);
          const std::vector<Transfer> out{{"up", sent, up}, {"down", also_sent, down}},
              in{{"up", from_down, down}, {"down", from_up, up}};
          if (way == "begun")
            begun = group->pairs().begin_exchange(out, in);
          else
            group->pairs().exchange(out, in);
        }
        // Where the pool gave their memory away, this is it.
        const Tensor poison = Tensor::zeros({count}, DType::kBF16).on(gpu), more = poison.clone();
        group->end_overlap();
        if (begun) begun->wait();
        expect_same(from_down, values(down), "a transfer from below");
        expect_same(from_up, values(up + 100), "a transfer from above");
      }
    }
    const Tensor sum = values_of(hosts.rank(), {64}, DType::kF32), there = sum.on(gpu);
    group->all_reduce("values", there);
    hosts.all_reduce("values", sum);
    if (ranks == 2) expect_same(there, sum, "all_reduce");
    group->disconnect();
  }
});

TEST_F(Nccl, TransfersArrive) {
  for (const char* checks : {"", "checks"}) {
    const RanksOutcome outcome = run_ranks(2, "gpu_pairs", checks);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
  }
}

const bool kOtherTransfer = add_rank_body("gpu_other_transfer", [](Group& hosts, const std::string& how) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu);
  group->set_checks(true);
  const int other = 1 - hosts.rank();
  if (how != "unconnected") group->pairs().connect({&other, 1});
  const Tensor values = Tensor::zeros({how.empty() ? 4 + hosts.rank() : 4}, DType::kF32).on(gpu);
  if (hosts.rank() == 0) group->pairs().send("x", values, 1);
  if (hosts.rank() == 1) group->pairs().receive("x", values, 0);
});

TEST_F(Nccl, OtherTransfersAreAnErrorWithBoth) {
  const RanksOutcome outcome = run_ranks(2, "gpu_other_transfer");
  EXPECT_EQ(outcome.code, 1);
  expect_has(outcome.text,
             "ranks meet in different transfers: rank 0 sends in transfer 1 from rank 0 to rank 1 of 'x', "
             "float32 [4]; rank 1 receives in transfer 1 from rank 0 to rank 1 of 'x', float32 [5]");
  const RanksOutcome unconnected = run_ranks(2, "gpu_other_transfer", "unconnected");
  EXPECT_EQ(unconnected.code, 1);
  expect_has(unconnected.text, "Pairs::connect() comes before transfers");
}

// "checks", in a "part" of the group, or before the GPUs are "connected".
const bool kHang = add_rank_body("gpu_hang", [](Group& hosts, const std::string& how) {
  const Device gpu = own_gpu(hosts);
  const std::unique_ptr<Group> group = device_group(hosts, gpu), part = group->part("tensor", {0, 1});
  group->set_checks(how == "checks");
  Group& used = how == "part" ? *part : *group;
  const Tensor values = Tensor::zeros({1024}, DType::kF32).on(gpu);
  if (how != "connected") used.all_reduce("gradients", values);
  values.on({});
  group->set_deadline(2);
  if (hosts.rank() == 1) ::kill(::getpid(), SIGSTOP);
  used.all_reduce("gradients", values);
  values.on({});
});

TEST_F(Nccl, ARankThatHangsEndsAll) {
  const RanksOutcome outcome = run_ranks(2, "gpu_hang");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_LT(outcome.seconds, 30);
  expect_has(outcome.text,
             "all_reduce of 'gradients', float32 [1024], in group world (ranks 0, 1) does not end");
  const RanksOutcome checked = run_ranks(2, "gpu_hang", "checks");
  EXPECT_EQ(checked.code, 4);
  expect_has(checked.text, "rank 1 did not come to collective ");
  const RanksOutcome part = run_ranks(2, "gpu_hang", "part");
  EXPECT_EQ(part.code, 4);
  EXPECT_LT(part.seconds, 30);
  expect_has(part.text, "in group tensor (ranks 0, 1) does not end within 2 s");
  const RanksOutcome alone = run_ranks(2, "gpu_hang", "connected");
  EXPECT_EQ(alone.code, 4);
  EXPECT_LT(alone.seconds, 30);
  expect_has(alone.text, "within 2 s");
}

const bool kMismatch = add_rank_body("gpu_mismatch", [](Group& hosts, const std::string&) {
  const std::unique_ptr<Group> group = device_group(hosts, own_gpu(hosts));
  group->set_checks(true);
  const Tensor values = Tensor::zeros({4 + hosts.rank()}, DType::kF32).on(own_gpu(hosts));
  group->all_reduce("gradients", values);
});

TEST_F(Nccl, RanksInDifferentCallsGetBoth) {
  const RanksOutcome outcome = run_ranks(2, "gpu_mismatch");
  EXPECT_EQ(outcome.code, 1);
  expect_has(outcome.text,
             "ranks meet in different calls: rank 0 in collective 1, all_reduce of 'gradients', float32 "
             "[4]; rank 1 in collective 1, all_reduce of 'gradients', float32 [5]");
}

}  // namespace
}  // namespace temper::collectives
