#include "parallel/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "parallel/pipeline/schedule_check.h"
#include "parallel/pipeline/timeline.h"
#include "tests/support/errors.h"

namespace temper::parallel {
namespace {

void expect_error(const std::function<void()>& act, const std::string& error) {
  EXPECT_EQ(error_of(act), error);
}

void expect_defect(const Schedule& schedule, const std::string& error) {
  EXPECT_EQ(error_of([&] { check_schedule(schedule); }, ErrorKind::kDefect), error);
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved, ScheduleKind::kZbH1};

std::string name_of(const Schedule& schedule) {
  return fmt::format("{}, {} stages, {} chunks, {} micro-batches", to_string(schedule.kind),
                     schedule.shape.stages, schedule.shape.chunks, schedule.shape.micro_batches);
}

// Stages 1 to 8, chunks 1 to 4, micro-batches 1 to 3 · stages.
void for_all_schedules(const std::function<void(const Schedule&)>& f, const PartCosts& costs = {}) {
  for (const ScheduleKind kind : kKinds)
    for (int stages = 1; stages <= 8; ++stages)
      for (int chunks = 1; chunks <= (kind == ScheduleKind::kInterleaved ? 4 : 1); ++chunks)
        for (int micro_batches = 1; micro_batches <= 3 * stages; ++micro_batches)
          f(make_schedule(kind, {stages, chunks, micro_batches}, costs));
}

// No deadlock, nothing left out or twice, inputs are there, no more activations than promised (which a rank
// has at some time, so that the promise is no larger than need be).
TEST(Schedules, RunWithSendsThatWait) {
  int count = 0;
  for_all_schedules([&](const Schedule& schedule) {
    ++count;
    try {
      const std::vector<RankPeak> peaks = check_schedule(schedule);
      for (size_t rank = 0; rank < peaks.size(); ++rank) {
        EXPECT_LE(peaks[rank].received, schedule.shape.stages * schedule.shape.chunks)
            << name_of(schedule) << ", rank " << rank;
        if (schedule.kind == ScheduleKind::kZbH1) continue;
        EXPECT_EQ(peaks[rank].activations, schedule.most_activations[rank]) << name_of(schedule);
      }
      if (schedule.kind == ScheduleKind::kZbH1) {
        EXPECT_EQ(peaks[0].activations, schedule.most_activations[0]) << name_of(schedule);
      }
    } catch (const Error& error) {
      ADD_FAILURE() << name_of(schedule) << ": " << error.what();
    }
  });
  EXPECT_EQ(count, 108 * (1 + 4 + 1));
}

// The published numbers of activations.
TEST(Schedules, KeepNoMoreActivationsThanPublished) {
  for_all_schedules([](const Schedule& schedule) {
    const auto [stages, chunks, micro_batches, first_trained] = schedule.shape;
    for (int rank = 0; rank < stages; ++rank) {
      const int most = schedule.most_activations[static_cast<size_t>(rank)];
      if (schedule.kind != ScheduleKind::kZbH1 && chunks == 1) {
        EXPECT_EQ(most, std::min(stages - rank, micro_batches));
      } else if (schedule.kind == ScheduleKind::kZbH1) {
        EXPECT_EQ(most, std::min(stages, micro_batches));
      } else if (micro_batches % stages == 0) {
        // Of rank 0 stages · chunks, as with 1f1b, times 1 + (stages - 1) / (stages · chunks).
        EXPECT_EQ(most,
                  std::min(2 * (stages - rank - 1) + (chunks - 1) * stages + 1, chunks * micro_batches));
      } else {
        EXPECT_LE(most, 2 * (stages - rank - 1) + 1 + (chunks - 1) * std::max(micro_batches, 2 * stages - 1));
      }
    }
  });
}

double idle_over_ideal(const Schedule& schedule, const PartCosts& costs, Waiting waiting) {
  const Timeline timeline = simulate(schedule, equal_costs(schedule.shape, costs), waiting);
  const double ideal = timeline.computing / schedule.shape.stages;
  return (timeline.end - ideal) / ideal;
}

// The first chunk of a micro-batch comes back to rank 0 after `stages` forward passes: fewer micro-batches
// leave it waiting in every further chunk.
double published_idle(const Schedule& schedule, const PartCosts& costs) {
  const double p = schedule.shape.stages, v = schedule.shape.chunks, m = schedule.shape.micro_batches,
               fewer = std::max(0.0, p - m), whole = costs.of(Act::kForward) + costs.of(Act::kBackward);
  if (schedule.kind != ScheduleKind::kZbH1) return (p - 1 + fewer * (v - 1)) / (v * m);
  return ((p - 1) * (whole - 2 * costs.backward_weight) + fewer * costs.backward_weight) / (m * whole);
}

// 1f1b and interleaved: (stages - 1) / (chunks · micro-batches) of the ideal time; zb_h1: (stages - 1)
// (forward + backward of the input - backward of the weights). Those of one chunk also where ranks wait for
// every transfer, if passes take the same time.
TEST(Schedules, AreIdleAsPublished) {
  for (const PartCosts& costs : {PartCosts{1, 1, 1}, PartCosts{1, 0.5, 0.5}, PartCosts{2, 2, 1},
                                 PartCosts{1, 1.25, 0.75}, PartCosts{1, 2, 1}})
    for_all_schedules(
        [&](const Schedule& schedule) {
          const double found = idle_over_ideal(schedule, costs, Waiting::kForInputs),
                       published = published_idle(schedule, costs);
          const std::string where = fmt::format("{}, {} {} {}", name_of(schedule), costs.forward,
                                                costs.backward_input, costs.backward_weight);
          // Where backward passes are no multiple of forward passes, one transfer may wait for another.
          const double ratio = costs.of(Act::kBackward) / costs.forward;
          // Otherwise a transfer of several chunks may wait for another one (schedule.h).
          if (schedule.shape.chunks == 1 || ratio == 1 || ratio == 2) {
            EXPECT_NEAR(found, published, 1e-12) << where;
          }
          EXPECT_GE(found, published - 1e-12) << where;
        },
        costs);
  for_all_schedules([](const Schedule& schedule) {
    const PartCosts halves{1, 0.5, 0.5}, equal{1, 1, 1};
    if (schedule.kind == ScheduleKind::kInterleaved && schedule.shape.chunks > 1) return;
    EXPECT_NEAR(idle_over_ideal(schedule, equal, Waiting::kForAllTransfers), published_idle(schedule, equal),
                1e-12)
        << name_of(schedule);
    if (schedule.kind != ScheduleKind::k1F1B) return;
    const double p = schedule.shape.stages, m = schedule.shape.micro_batches;
    const Timeline timeline =
        simulate(schedule, equal_costs(schedule.shape, halves), Waiting::kForAllTransfers);
    EXPECT_NEAR(timeline.bubble_share(), (p - 1) / (m + p - 1), 1e-12) << name_of(schedule);
  });
}

// Parts before which nothing is trained: whatever is the first that is trained, no rank waits forever, no
// gradient is sent to them, nothing of them is kept, and they are not far ahead of the others.
TEST(Schedules, SendNoGradientThatNoneNeeds) {
  for_all_schedules([](const Schedule& whole) {
    PipelineShape shape = whole.shape;
    for (shape.first_trained = 1; shape.first_trained < shape.parts(); ++shape.first_trained) {
      const Schedule schedule = make_schedule(whole.kind, shape);
      SCOPED_TRACE(fmt::format("{}, first trained part {}", name_of(schedule), shape.first_trained));
      std::vector<RankPeak> peaks;
      ASSERT_EQ(error_of([&] { peaks = check_schedule(schedule); }, ErrorKind::kDefect), "");
      for (int rank = 0; rank < shape.stages; ++rank) {
        int frozen_parts = 0;
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
          frozen_parts += shape.part(rank, chunk) < shape.first_trained ? 1 : 0;
        const RankPeak& peak = peaks[static_cast<size_t>(rank)];
        EXPECT_EQ(peak.activations, schedule.most_activations[static_cast<size_t>(rank)]);
        EXPECT_LE(peak.activations, whole.most_activations[static_cast<size_t>(rank)]);
        if (frozen_parts == shape.chunks) {
          EXPECT_EQ(peak.activations, 0);
        }
        EXPECT_LE(peak.received, shape.stages * shape.chunks + kFrozenAhead);
        int gradients = 0;
        for (const Action& action : schedule.ranks[static_cast<size_t>(rank)])
          gradients += action.act == Act::kReceiveGradient ? 1 : 0;
        const int ends = shape.rank_of(shape.parts() - 1) == rank ? 1 : 0;
        EXPECT_EQ(gradients,
                  shape.stages == 1 ? 0 : (shape.chunks - frozen_parts - ends) * shape.micro_batches);
      }
    }
  });
}

TEST(Schedules, OfNumbersThatCannotBeAreErrors) {
  expect_error(
      [] {
        make_schedule(ScheduleKind::k1F1B, {4, 2, 8});
      },
      "[pipeline] schedule 1f1b has 1 chunk a rank, 2 are asked for; choose interleaved, or 1 chunk");
  expect_error(
      [] {
        make_schedule(ScheduleKind::kInterleaved, {4, 2, 0});
      },
      "[pipeline] 4 stages of 2 chunks and 0 micro-batches; expected at least 1 of each");
}

// A lost, doubled or moved action is found, whichever it is.
TEST(ScheduleCheck, FindsEveryActionThatIsMissing) {
  for (const Schedule& whole :
       {make_schedule(ScheduleKind::k1F1B, {4, 1, 6}), make_schedule(ScheduleKind::kInterleaved, {3, 2, 4}),
        make_schedule(ScheduleKind::kZbH1, {4, 1, 5})})
    for (size_t rank = 0; rank < whole.ranks.size(); ++rank)
      for (size_t i = 0; i < whole.ranks[rank].size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        Schedule missing = whole, twice = whole;
        missing.ranks[rank].erase(missing.ranks[rank].begin() + at);
        twice.ranks[rank].insert(twice.ranks[rank].begin() + at, whole.ranks[rank][i]);
        EXPECT_THROW(check_schedule(missing), Error) << name_of(whole) << to_string(whole.ranks[rank][i]);
        EXPECT_THROW(check_schedule(twice), Error) << name_of(whole) << to_string(whole.ranks[rank][i]);
      }
}

// Of any two neighboring actions that are swapped, the schedule is still one where the check says so: it ends
// when it is run with sends that wait. Others are named.
TEST(ScheduleCheck, NamesWhoWaitsForWhat) {
  Schedule missing = make_schedule(ScheduleKind::k1F1B, {2, 1, 2});
  auto& first = missing.ranks[0];
  std::erase(first, Action{Act::kReceiveGradient, 0, 0});
  expect_defect(
      missing,
      "[pipeline] rank 0: backward of micro-batch 0, chunk 0 comes before the gradient of its output "
      "is there");
  Schedule no_send = make_schedule(ScheduleKind::k1F1B, {2, 1, 1});
  std::erase(no_send.ranks[0], Action{Act::kSendActivation, 0, 0});
  expect_defect(
      no_send,
      "[pipeline] the ranks wait for each other: rank 0 is in receive gradient of micro-batch 0, chunk "
      "0 and waits until rank 1 is in send gradient of micro-batch 0, chunk 0; rank 1 is in receive "
      "activation of micro-batch 0, chunk 0 and waits until rank 0 is in send activation of "
      "micro-batch 0, chunk 0");
  // Both send first.
  Schedule both{.shape = {2, 1, 2},
                .ranks = {{{Act::kForward, 0, 0},
                           {Act::kSendActivation, 0, 0},
                           {Act::kForward, 1, 0},
                           {Act::kSendActivation, 1, 0}},
                          {{Act::kReceiveActivation, 0, 0},
                           {Act::kForward, 0, 0},
                           {Act::kBackward, 0, 0},
                           {Act::kSendGradient, 0, 0}}},
                .most_activations = {2, 1}};
  expect_defect(
      both,
      "[pipeline] the ranks wait for each other: rank 0 is in send activation of micro-batch 1, chunk "
      "0 and waits until rank 1 is in receive activation of micro-batch 1, chunk 0; rank 1 is in send "
      "gradient of micro-batch 0, chunk 0 and waits until rank 0 is in receive gradient of "
      "micro-batch 0, chunk 0");
}

TEST(ScheduleCheck, NamesWhatComesTooEarlyTooOftenOrNotAtAll) {
  const Schedule whole = make_schedule(ScheduleKind::kZbH1, {1, 1, 2});
  const auto broken = [&](const std::function<void(Schedule&)>& change, const std::string& error) {
    Schedule schedule = whole;
    change(schedule);
    expect_defect(schedule, error);
  };
  broken([](Schedule& s) { std::swap(s.ranks[0][0], s.ranks[0][1]); },
         "[pipeline] rank 0: backward of the input of micro-batch 0, chunk 0 comes before its forward");
  broken([](Schedule& s) { std::swap(s.ranks[0][1], s.ranks[0][2]); },
         "[pipeline] rank 0: backward of the weights of micro-batch 0, chunk 0 comes before the backward of "
         "the input");
  broken([](Schedule& s) { s.ranks[0].pop_back(); },
         "[pipeline] rank 0: backward of the weights of micro-batch 1, chunk 0 is missing");
  broken(
      [](Schedule& s) {
        s.ranks[0].push_back({Act::kForward, 1, 0});
      },
      "[pipeline] rank 0: forward of micro-batch 1, chunk 0 comes twice");
  broken(
      [](Schedule& s) {
        s.ranks[0].push_back({Act::kBackward, 1, 0});
      },
      "[pipeline] rank 0: backward of micro-batch 1, chunk 0 comes before any other backward");
  broken([](Schedule& s) { s.ranks[0][0].micro_batch = 2; },
         "[pipeline] rank 0: forward of micro-batch 2, chunk 0 is not one of 1 chunks and 2 micro-batches");
  broken(
      [](Schedule& s) {
        s.ranks[0].push_back({Act::kSendActivation, 1, 0});
      },
      "[pipeline] rank 0: send activation of micro-batch 1, chunk 0 has no part on the other side");
  broken([](Schedule& s) { s.most_activations[0] = 0; },
         "[pipeline] rank 0 has the activations of 1 forward passes; the schedule says at most 0");
}

}  // namespace
}  // namespace temper::parallel
