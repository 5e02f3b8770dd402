// Outlines take what their kernels take: every kernel of every op is run for real and on a device that only
// counts, each op on the inputs of its probe.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/threads/threads.h"
#include "ops/op_info.h"
#include "tests/support/gpu.h"

namespace temper::ops {
namespace {

// The peak memory of a run without its inputs, for each tag.
std::vector<int64_t> taken(const OpInfo& op, const std::string& provider, DType dtype,
                           const HardwareFacts& facts) {
  const ProbeRun run = op.probe(provider, dtype, facts);
  run();  // what is made once
  Pool& memory = pool(facts.device);
  const auto before = memory.usage();
  memory.reset_peak();
  run();
  const auto after = memory.usage();
  std::vector<int64_t> most;
  for (size_t tag = 0; tag < after.size(); ++tag) most.push_back(after[tag].peak - before[tag].live);
  return most;
}

void expect_planned(const OpInfo& op, const KernelInfo& kernel, DType dtype, const HardwareFacts& facts,
                    MemoryTag tag, int64_t planned, int64_t real) {
  const std::string what =
      fmt::format("{} of {} by {} in {} on {}: {} planned, {} taken", to_string(tag), op.name,
                  kernel.provider, to_string(dtype), to_string(facts.device), planned, real);
  // Small sums and lists are left out. Tasks may be over before all threads have one.
  constexpr int64_t kSmall = 512 << 10, kOfTask = 3 << 20;
  EXPECT_GE(planned, real - real / 20 - kSmall) << what;
  const int64_t tasks = is_apart(facts.device) ? 0 : num_threads() * kOfTask;
  EXPECT_LE(planned, real + real / 20 + kSmall + tasks) << what;
}

void check(const OpInfo& op, const KernelInfo& kernel, DType dtype, const HardwareFacts& facts,
           const std::vector<MemoryTag>& tags) {
  HardwareFacts counted = facts;
  counted.device = {DeviceType::kCounted, is_apart(facts.device) ? 1 : 0};
  std::vector<int64_t> real;
  try {
    real = taken(op, kernel.provider, dtype, facts);
  } catch (const Error&) {
    return;  // refused on this machine: other tests say why
  }
  const std::vector<int64_t> planned = taken(op, kernel.provider, dtype, counted);
  for (const MemoryTag tag : tags) {
    const auto place = static_cast<size_t>(tag);
    expect_planned(op, kernel, dtype, facts, tag, planned[place], real[place]);
  }
}

void check_all(const HardwareFacts& facts) {
  for (const auto& [name, op] : op_infos().entries()) {
    // Generation is not planned.
    if (op.probe == nullptr || name == "latent_decode" || name == "paged_attention" || name == "sample")
      continue;
    for (const KernelInfo& kernel : op.kernels()) {
      if (!kernel.hardware.empty() && kernel.hardware != facts.hardware) continue;
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<MemoryTag> tags{MemoryTag::kWorkspace};
        // Results are widened for the probe, on the CPU with memory of this tag. Compositions of experts,
        // which read ids that a device that only counts does not have, are compared everywhere.
        const bool experts = name == "moe_experts" || name == "lora_moe_experts";
        if (is_apart(facts.device) || (dtype == DType::kF32 && (experts || !kernel.hardware.empty())))
          tags.push_back(MemoryTag::kActivations);
        check(op, kernel, dtype, facts, tags);
      }
    }
  }
}

TEST(Outline, TakesWhatTheKernelTakesOnTheCpu) { check_all(detect_cpu()); }

TEST(Outline, TakesWhatTheKernelTakesOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  check_all(detect_hardware("cuda"));
}

}  // namespace
}  // namespace temper::ops
