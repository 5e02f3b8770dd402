// How a run states the policy of its device's memory, and when.
#include "recipes/loop/colocation.h"

#include <gtest/gtest.h>

#include "recipes/keys/recipe.h"
#include "tests/support/errors.h"

namespace temper::recipes {
namespace {

constexpr Device kNpu{DeviceType::kNpu, 1}, kCpu{};
device::ChosenPolicy chosen;

class ColocationTest : public testing::Test {
 protected:
  void SetUp() override {
    chosen = {};
    device::register_memory_policy(DeviceType::kNpu, [](int) { return chosen; });
    config_.recipe = "sft";
  }
  std::string stated(Device device) const { return stated_policy(colocation_of(config_, device), device); }
  RunConfig config_;
};

TEST_F(ColocationTest, RunsThatAreAloneSayNothingAndTakeWhatIsThere) {
  EXPECT_EQ(stated(kCpu), "");
  EXPECT_EQ(stated(kNpu), "");
  chosen = {device::MemoryPolicy::kSeparate, "NPU_POOL=separate"};
  EXPECT_EQ(stated(kNpu), "");
  config_.exchange.to = "/tmp/weights.sock";  // through the CPU's memory
  config_.exchange.memory = ChunkMemory::kHost;
  EXPECT_EQ(stated(kNpu), "");
}

TEST_F(ColocationTest, RunsThatShareADeviceSayHow) {
  config_.exchange.to = "/tmp/weights.sock";
  EXPECT_EQ(stated(kCpu), "");
  EXPECT_EQ(stated(kNpu), "memory (npu:1): shared with another process");
  config_.exchange.to = "";
  config_.recipe = "grpo";
  EXPECT_EQ(stated(kNpu), "memory (npu:1): training and rollouts take turns");
  chosen = {device::MemoryPolicy::kSeparate, "NPU_POOL=separate"};  // nothing sleeps here
  EXPECT_EQ(stated(kNpu),
            "memory (npu:1): training and rollouts take turns; every block is allocated separately "
            "(NPU_POOL=separate)");
}

TEST_F(ColocationTest, WhatThePolicyCannotDoIsRefusedAtTheStart) {
  config_.exchange.to = "/tmp/weights.sock";
  chosen = {device::MemoryPolicy::kSeparate, "NPU_POOL=separate"};
  expect_has(error_of([&] { stated(kNpu); }),
             "[exchange] needs memory of npu:1 in regions, which sleep and can be shared, but "
             "NPU_POOL=separate gives "
             "each block memory of its own");
  expect_has(error_of([&] {
               stated_policy({"rollouts, by turns", "grpo.engine.sleep"}, kNpu);
             }),
             "[grpo.engine.sleep] needs memory of npu:1 in regions");
}

}  // namespace
}  // namespace temper::recipes
