// Tensor ranks with a GPU each, whose engine sleeps between requests.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "collectives/device_group.h"
#include "parallel/mesh_groups.h"
#include "rollout/engine_of_ranks.h"
#include "tests/support/gpu.h"
#include "tests/support/rank_bodies.h"
#include "tests/support/tiny_model.h"

namespace temper::recipes {
namespace {

constexpr int kAsked = 128;

// Wide enough that NCCL has ranks write to each other's memory.
std::unique_ptr<models::Model> wide_model(Device gpu, const layers::ModelRanks& ranks) {
  Json config = tiny_config();
  for (const auto& [name, value] : {std::pair{"hidden_size", 2048},
                                    {"intermediate_size", 2048},
                                    {"num_attention_heads", 16},
                                    {"num_key_value_heads", 4},
                                    {"head_dim", 64}})
    config.set(name, value);
  auto model = models::build_model(config, "wide",
                                   {.dtype = DType::kBF16,
                                    .ops = ops::OpsConfig{},
                                    .facts = detect_hardware(to_string(gpu)),
                                    .ranks = ranks});
  model->decoder.parameters().initialize(3, 0.02);
  return model;
}

std::map<int64_t, std::pair<std::vector<int32_t>, std::vector<float>>> all_answers(
    rollout::EngineOfRanks& engine) {
  std::map<int64_t, std::pair<std::vector<int32_t>, std::vector<float>>> found;
  if (engine.leads())
    for (int i = 0; i < kAsked; ++i) engine.add({1, i % 48, i * 7 % 48}, 40, static_cast<uint64_t>(i));
  while (engine.round(!engine.leads() || found.size() == kAsked) != rollout::EngineOfRanks::Round::kDone)
    for (rollout::Completion& each : engine.take_finished())
      found[each.id % kAsked] = {std::move(each.ids), std::move(each.columns.rollout_log_probs)};
  return found;
}

// Other ranks may have the memory that captured sums write to: none of it goes elsewhere and comes back.
const bool kSleeps = add_rank_body("gpu_engine_sleeps", [](collectives::Group& hosts, const std::string&) {
  const Device gpu{DeviceType::kCuda, hosts.on_machine().place};
  const std::unique_ptr<collectives::Group> ranks = collectives::device_group(hosts, gpu);
  const parallel::MeshGroups groups(*ranks, {.tensor = 2});
  const auto model = wide_model(gpu, groups.model());
  rollout::EngineOfRanks engine(model->decoder, {.cache_tokens = 16384, .max_running = kAsked}, nullptr);
  rollout::Request like;
  like.sampling.temperature = 1;
  engine.set_like(like);
  const Tensor poison = Tensor::empty({int64_t{1} << 26}, DType::kU8);
  std::memset(poison.raw(), 0xff, static_cast<size_t>(poison.bytes()));
  const auto expected = all_answers(engine);
  if (engine.leads() && expected.size() != kAsked) fail("{} answers", expected.size());
  const auto graphs = [&] { return pool(gpu).usage()[static_cast<size_t>(MemoryTag::kGraphs)]; };
  if (graphs().live == 0) fail("nothing was captured");
  for (int turn = 0; turn < 4; ++turn) {
    engine.sleep();
    if (graphs().live != 0) fail("captured sums are asleep in turn {}", turn);
    std::vector<Tensor> others;
    for (int i = 0; i < 8; ++i) others.push_back(poison.on(gpu));
    others.clear();
    engine.wake();
    if (all_answers(engine) != expected) fail("other answers in turn {}", turn);
  }
});

TEST(GpuRolloutRanks, SleepBetweenRequests) {
  if (const std::string why = why_no_gpu(2); !why.empty()) GTEST_SKIP() << why;
  const RanksOutcome outcome = run_ranks(2, "gpu_engine_sleeps");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
}

}  // namespace
}  // namespace temper::recipes
