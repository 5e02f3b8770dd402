// Updates and rollouts of one model by turns: what the other needs not sleeps, and nothing is lost or moved.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/threads/background.h"
#include "checkpoints/states/owned_tensors.h"
#include "checkpoints/states/shared_state.h"
#include "rollout/engine.h"
#include "tests/support/packed_rows.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tiny_model.h"
#include "training/rollout_turn.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

using training::RolloutTurn;
using training::UpdateState;

const std::vector<data::PackedRow> kRows{test_row(1, {9}), test_row(2, {4, 12}), test_row(3, {20})};
const std::vector<UpdateState> kAll{UpdateState::kOptimizer, UpdateState::kGradients};

struct Colocated {
  // bfloat16 weights have masters, which sleep with the moments.
  Colocated()
      : model(tiny_model({.dtype = DType::kBF16, .ops = {}})),
        optimizer(model->decoder.parameters(), model->decoder.ops(), {}),
        trainer(model->decoder, optimizer, {.micro_batch_tokens = 24}),
        engine(model->decoder, {.cache_tokens = 1024, .max_running = 4}) {}

  layers::ParameterStore& parameters() const { return model->decoder.parameters(); }
  rollout::Completion answer() {
    rollout::Request request;
    for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(i * 7 % 48);
    request.sampling = {.temperature = 1, .seed = 3};
    request.max_new_tokens = 8;
    engine.add(request);
    while (engine.step()) {
    }
    return engine.take_finished().at(0);
  }
  // Where all lies that captured work would read, and what is in the optimizer's state.
  std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (size_t i = 0; i < parameters().size(); ++i) all.push_back(parameters()[i].value.raw());
    for (const PlacedTensor& state : optimizer.state()) all.push_back(state.own.raw());
    return all;
  }
  std::vector<std::vector<float>> states() const {
    std::vector<std::vector<float>> all;
    for (const PlacedTensor& state : optimizer.state()) {
      const Tensor values = state.own.to(DType::kF32);
      all.emplace_back(values.values<float>().begin(), values.values<float>().end());
    }
    return all;
  }

  std::unique_ptr<models::Model> model;
  optimizers::AdamW optimizer;
  training::Trainer trainer;
  rollout::Engine engine;
};

struct Use {
  MemoryUsage regions = pool().usage();
  int64_t resident = current_resident_bytes();
};

void expect_same_use(const Use& now, const Use& then) {
  constexpr double kMiB = 1 << 20;
  for (size_t i = 0; i < now.regions.size(); ++i) {
    EXPECT_EQ(now.regions[i].live, then.regions[i].live) << to_string(static_cast<MemoryTag>(i));
    EXPECT_NEAR(static_cast<double>(now.regions[i].held), static_cast<double>(then.regions[i].held), kMiB)
        << to_string(static_cast<MemoryTag>(i));
  }
  if (kSanitizerTakesMemory) return;  // it keeps what is freed
  EXPECT_NEAR(static_cast<double>(now.resident), static_cast<double>(then.resident), kMiB);
}

// During rollouts the optimizer's state and gradients sleep, during updates the cache.
TEST(MemoryTurns, FiveHundredCyclesEndAsTheyBegan) {
  Colocated both;
  const rollout::Completion first = both.answer();
  both.trainer.step(kRows, 0);  // what the cache has of the prompt is of other weights from now on
  const std::vector<const void*> addresses = both.addresses();
  std::optional<Use> fifth;
  for (int cycle = 1; cycle <= 500; ++cycle) {
    {
      RolloutTurn turn(both.parameters(), kAll);
      EXPECT_GT(turn.kept_bytes(), 0);
      const rollout::Completion again = both.answer();
      ASSERT_EQ(again.ids, first.ids) << cycle;
      ASSERT_EQ(again.columns.rollout_log_probs, first.columns.rollout_log_probs) << cycle;
      turn.wake();
    }
    {
      both.engine.sleep();
      both.trainer.step(kRows, 0);
      both.engine.wake();
    }
    ASSERT_EQ(both.addresses(), addresses) << cycle;
    if (cycle == 5) fifth = Use();
  }
  expect_same_use(Use(), *fifth);
}

int64_t live_gradients() { return pool().usage()[static_cast<size_t>(MemoryTag::kGradients)].live; }

// A run whose optimizer sleeps between updates learns the same as one whose optimizer does not.
TEST(MemoryTurns, UpdatesAreThoseOfAnOptimizerThatNeverSleeps) {
  Colocated sleeps, waits;
  for (int step = 0; step < 4; ++step) {
    {
      const int64_t gradients = live_gradients();
      RolloutTurn turn(sleeps.parameters(), kAll);
      EXPECT_TRUE(step == 0 || live_gradients() < gradients);
      EXPECT_EQ(pool().usage()[static_cast<size_t>(MemoryTag::kOptimizer)].held, 0);
      sleeps.answer();
    }
    for (Colocated* each : {&sleeps, &waits}) each->trainer.step(kRows, 1e-2);
    EXPECT_EQ(sleeps.states(), waits.states()) << step;
  }
  EXPECT_EQ(sleeps.answer().columns.rollout_log_probs, waits.answer().columns.rollout_log_probs);
}

TEST(MemoryTurns, WhatSleepsIsAskedForNothing) {
  Colocated both;
  both.trainer.step(kRows, 0);
  const auto expect_refused = [](const std::function<void()>& work, const std::string& region,
                                 const std::string& turn) {
    try {
      work();
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("'" + region + "'"), std::string::npos) << text;
      EXPECT_NE(text.find("during " + turn), std::string::npos) << text;
    }
  };
  {
    const RolloutTurn turn(both.parameters(), kAll);
    expect_refused([&] { both.trainer.step(kRows, 0); }, "optimizer", "a rollout");
    expect_refused([&] { both.optimizer.state(); }, "optimizer", "a rollout");
  }
  both.engine.sleep();
  expect_refused([&] { both.answer(); }, "kv_cache", "an update");
  expect_refused([&] { rollout::Engine(both.model->decoder, {}); }, "kv_cache", "an update");
}

// A checkpoint is written during rollouts, from copies: its bytes are those of when it was asked for, while
// the state sleeps, wakes and changes.
TEST(MemoryTurns, ACheckpointIsThatOfItsStepWhileTheStateSleeps) {
  Colocated both;
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("memory_turns_" + std::to_string(getpid()))).string();
  std::vector<std::vector<std::vector<float>>> read;
  const checkpoints::StagedOwner owner = checkpoints::owner_of_states(collectives::alone());
  for (int save = 0; save < 3; ++save) {
    both.trainer.step(kRows, 1e-2);
    const auto expected = both.states();
    checkpoints::OwnedTensors tensors(both.optimizer.state(), 0);
    tensors.copy();
    checkpoints::SharedState files(folder, save + 1, owner);
    Background writer;
    writer.start([&] {
      files.write([&](checkpoints::StateWriter& state) { tensors.add_to(state, "optimizer", 0, 1); });
    });
    for (int turn = 0; turn < 3; ++turn) {
      { const RolloutTurn asleep(both.parameters(), kAll); }
      both.trainer.step(kRows, 1e-2);
    }
    writer.wait();
    files.commit(collectives::alone());
    EXPECT_NE(both.states(), expected);
    Colocated other;
    checkpoints::read_placed(*checkpoints::open_newest(folder), "optimizer", other.optimizer.state());
    EXPECT_EQ(other.states(), expected) << save;
    read.push_back(expected);
  }
  EXPECT_NE(read[0], read[1]);
  EXPECT_NE(read[1], read[2]);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace temper::recipes
