#include "parallel/pipeline/timeline.h"

#include <gtest/gtest.h>

namespace temper::parallel {
namespace {

// By hand: rank 1 waits for the first transfer, rank 0 for the last one.
TEST(Timeline, HasTransfersAndPartsOfUnlikeCosts) {
  const Schedule schedule = make_schedule(ScheduleKind::k1F1B, {2, 1, 1});
  const Timeline timeline = simulate(schedule, {{{2, 1, 3}, {5, 4, 1}}, 0.5}, Waiting::kForInputs);
  // F 0..2, send 2..2.5 | F 2.5..7.5, B 7.5..12.5, send 12.5..13 | B 13..17.
  EXPECT_EQ(timeline.end, 17);
  EXPECT_EQ(timeline.computing, 2 + 4 + 5 + 5);
  EXPECT_EQ(timeline.ranks[1][0].begin, 2);
  EXPECT_EQ(timeline.ranks[1][2].begin, 7.5);
  EXPECT_EQ(timeline.ranks[0].back().begin, 13);
  EXPECT_NEAR(timeline.bubble_share(), 1 - 16.0 / 34, 1e-12);
}

// A rank that sends waits for one that computes; where transfers overlap it computes further.
TEST(Timeline, HasWaitsForTransfersOrForInputsAlone) {
  const Schedule schedule{.shape = {2, 1, 2},
                          .ranks = {{{Act::kForward, 0, 0},
                                     {Act::kSendActivation, 0, 0},
                                     {Act::kForward, 1, 0},
                                     {Act::kSendActivation, 1, 0},
                                     {Act::kBackwardWeight, 0, 0}},
                                    {{Act::kReceiveActivation, 0, 0},
                                     {Act::kForward, 0, 0},
                                     {Act::kReceiveActivation, 1, 0},
                                     {Act::kForward, 1, 0}}},
                          .most_activations = {2, 2}};
  // The second transfer begins when rank 1 has computed, at 11.
  PipelineCosts costs{{{1, 1, 1}, {10, 1, 1}}, 0};
  const auto last = [&](Waiting waiting) { return simulate(schedule, costs, waiting).ranks[0].back().begin; };
  EXPECT_EQ(last(Waiting::kForAllTransfers), 11);
  EXPECT_EQ(last(Waiting::kForInputs), 2);
}

TEST(Timeline, TransfersOfARankComeOneAfterTheOther) {
  const Schedule schedule{.shape = {2, 1, 2},
                          .ranks = {{{Act::kForward, 0, 0},
                                     {Act::kSendActivation, 0, 0},
                                     {Act::kForward, 1, 0},
                                     {Act::kSendActivation, 1, 0}},
                                    {{Act::kReceiveActivation, 0, 0},
                                     {Act::kReceiveActivation, 1, 0},
                                     {Act::kForward, 0, 0},
                                     {Act::kForward, 1, 0}}},
                          .most_activations = {2, 2}};
  const Timeline timeline = simulate(schedule, {{{1, 1, 1}, {1, 1, 1}}, 4}, Waiting::kForInputs);
  EXPECT_EQ(timeline.ranks[0][2].begin, 1) << "a pass that needs no transfer";
  EXPECT_EQ(timeline.ranks[0][3].begin, 5);
  EXPECT_EQ(timeline.ranks[1][2].begin, 5);
  EXPECT_EQ(timeline.ranks[1][3].begin, 9);
}

TEST(Timeline, ASlowerPartMakesAllWait) {
  const Schedule schedule = make_schedule(ScheduleKind::k1F1B, {4, 1, 16});
  PipelineCosts costs = equal_costs(schedule.shape, {});
  const double equal = simulate(schedule, costs, Waiting::kForInputs).end;
  costs.parts[2] = {2, 2, 2};
  EXPECT_GE(simulate(schedule, costs, Waiting::kForInputs).end, equal + 15 * 3)
      << "16 micro-batches of the slow part are in a row";
}

TEST(Timeline, IsDrawnForPeople) {
  const auto drawn = [](ScheduleKind kind, const PipelineShape& shape, size_t width) {
    const Schedule schedule = make_schedule(kind, shape);
    return draw(schedule, simulate(schedule, equal_costs(shape, {}), Waiting::kForInputs), width);
  };
  EXPECT_EQ(drawn(ScheduleKind::k1F1B, {2, 1, 3}, 100),
            "1f1b: 2 stages, 3 micro-batches; 25.0 % of the ranks' time is idle\n"
            "rank 0  F0 F1 .  .  B0 -  F2 B1 -  .  B2 -  (at most 2 activations)\n"
            "rank 1  .  F0 B0 -  F1 B1 -  F2 B2 -  (at most 1 activations)\n");
  EXPECT_EQ(drawn(ScheduleKind::kZbH1, {2, 1, 2}, 100),
            "zb_h1: 2 stages, 2 micro-batches; 14.3 % of the ranks' time is idle\n"
            "rank 0  F0 F1 .  b0 w0 b1 w1 (at most 2 activations)\n"
            "rank 1  .  F0 b0 F1 b1 w0 w1 (at most 2 activations)\n");
  const std::string wide = drawn(ScheduleKind::kInterleaved, {2, 2, 40}, 60);
  EXPECT_NE(wide.find("interleaved: 2 stages of 2 chunks, 40 micro-batches"), std::string::npos);
  EXPECT_NE(wide.find("\nrank 0  F0a  F1a  "), std::string::npos) << wide;
  EXPECT_NE(wide.find("... (at most 5 activations)\n"), std::string::npos) << wide;
  for (size_t at = wide.find('\n') + 1, end; (end = wide.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_EQ(end - at, 60) << wide;
}

}  // namespace
}  // namespace temper::parallel
