#include "recipes/costs/known_machines.h"

#include "backends/peak.h"
#include "base/error.h"
#include "base/text.h"
#include "base/threads/threads.h"

namespace temper::recipes {
namespace {

struct Published {
  std::string_view id;
  std::string_view facts;  // in known_hardware()
  std::string_view name;   // that CUDA gives the device
  int64_t memory_mib;      // that nvidia-smi shows
  double teraflops;        // dense bfloat16
  double terabytes;        // per second, of memory
  double link, network;    // gigabytes per second and direction, of one GPU
  int host = 8;            // GPUs that the link joins
};

// NVIDIA's data sheets: H100 and H200 SXM (NVLink 900 GB/s in both directions, ConnectX-7 of 400 Gb/s for
// each GPU of a DGX), A100 SXM 80 GB (600 GB/s, ConnectX-6 of 200 Gb/s), DGX B200 (1.8 TB/s, 400 Gb/s), L40S
// (PCIe 4.0 x16).
constexpr Published kPublished[] = {
    {"a100", "cuda-sm80", "NVIDIA A100-SXM4-80GB", 81920, 312, 2.039, 300, 25},
    {"b200", "cuda-sm100", "NVIDIA B200", 183359, 2250, 7.7, 900, 50},
    {"h100", "cuda-sm90", "NVIDIA H100 80GB HBM3", 81559, 989, 3.35, 450, 50},
    {"h200", "cuda-sm90", "NVIDIA H200", 143771, 989, 4.8, 450, 50},
    {"l40s", "cuda-sm89", "NVIDIA L40S", 46068, 362, 0.864, 32, 25}};

// The CUDA context, libraries and NCCL's communicators, which no pool counts.
constexpr int64_t kReservedMib = 2048;

// Of an H200: a copy's share of the published bandwidth (4.26 of 4.8 TB/s), what two GPUs pass on of the
// link's (210 to 250 GB/s in a training step, lab/ranks.md), and how much longer the backward pass takes next
// to the sums of its gradients. A network's share and slowdown are assumed.
constexpr double kCopyShare = 0.888, kLinkShare = 0.53, kLinkSlowdown = 0.8, kNetworkShare = 0.85,
                 kNetworkSlowdown = 0.2;

OpSpeed products(double peak, const std::vector<SpeedCurve::Point>& shares) {
  OpSpeed speed{.of_flops = true, .curve = {shares}};
  for (SpeedCurve::Point& point : speed.curve.points) point.per_second *= peak;
  return speed;
}

OpSpeed moves(double bandwidth, double share) { return {.curve = {{{1, share * bandwidth}}}}; }

// By size: linears of Qwen3-8B run at 700 to 730 TFLOP/s in a step, those of Moonlight, with a fifth of the
// work, at 550. The delta rule is counted as its recurrence; its chunks compute more.
void add_ops(Machine& m) {
  const double peak = m.peak_flops, copy = m.memory_bandwidth;
  m.ops[std::string(Machine::kProducts)] =
      products(peak, {{1e9, 0.12}, {1e10, 0.35}, {1e11, 0.56}, {4e11, 0.7}, {2e12, 0.73}});
  m.ops["cross_entropy"] = products(peak, {{1e10, 0.35}, {1e11, 0.6}, {1e12, 0.726}});
  m.ops["attention"] = products(peak, {{1e9, 0.1}, {1e10, 0.3}, {2.7e11, 0.53}, {3.5e13, 0.6}});
  m.ops["attention backward"] = products(peak, {{1e9, 0.08}, {1e10, 0.25}, {6.9e11, 0.45}, {8.8e13, 0.5}});
  m.ops["moe_experts"] = products(peak, {{1e10, 0.2}, {1e11, 0.45}, {6e11, 0.54}});
  m.ops["moe_experts backward"] = products(peak, {{1e10, 0.15}, {1e11, 0.35}, {1e12, 0.42}});
  m.ops["lora_moe_experts"] = m.ops["moe_experts"];
  m.ops["lora_moe_experts backward"] = m.ops["moe_experts backward"];
  m.ops["chunk_gated_delta_rule"] = products(peak, {{1e9, 0.03}, {2.6e10, 0.073}});
  m.ops["chunk_gated_delta_rule backward"] = products(peak, {{1e9, 0.02}, {5.2e10, 0.043}});
  m.ops[std::string(Machine::kMoves)] = moves(copy, 0.8);
  m.ops["adamw"] = m.ops["swiglu"] = moves(copy, 0.96);
  m.ops["rms_norm"] = m.ops["global_norm"] = moves(copy, 0.88);
  m.ops["causal_conv1d"] = moves(copy, 0.68);
}

Machine from_published(const Published& published) {
  Machine m;
  m.facts = known_hardware(published.facts);
  m.facts.name = published.name;
  m.facts.memory_bytes = (published.memory_mib - kReservedMib) << 20;
  m.devices_of_host = published.host;
  m.peak_flops = published.teraflops * 1e12;
  m.memory_bandwidth = kCopyShare * published.terabytes * 1e12;
  m.launch = 4e-6;
  m.step_share = 0.97;
  add_ops(m);
  m.host = {
      .bytes_per_second = kLinkShare * published.link * 1e9, .latency = 12e-6, .slowdown = kLinkSlowdown};
  m.network = {.bytes_per_second = kNetworkShare * published.network * 1e9,
               .latency = 20e-6,
               .slowdown = kNetworkSlowdown};
  return m;
}

// Ranks of one machine exchange messages through its memory.
Machine this_cpu(const HardwareFacts& facts, DType dtype) {
  Machine m;
  m.facts = facts;
  m.shares_cores = true;
  m.dtype = dtype;
  m.peak_flops = backends::measured_matmul_peak(dtype, num_threads());
  m.memory_bandwidth = backends::measured_memory_bandwidth(num_threads());
  m.step_share = 0.9;
  const SpeedCurve curve{{{1e5, 0.2 * m.peak_flops}, {1e8, 0.75 * m.peak_flops}}};
  m.ops[std::string(Machine::kProducts)] = {.of_flops = true, .curve = curve};
  m.ops[std::string(Machine::kMoves)] = moves(m.memory_bandwidth, 0.7);
  m.host = {.bytes_per_second = 0.25 * m.memory_bandwidth, .latency = 20e-6};
  m.network = {.bytes_per_second = 1e9, .latency = 50e-6};
  return m;
}

}  // namespace

std::vector<std::string> known_machine_names() {
  std::vector<std::string> names;
  for (const Published& published : kPublished) names.emplace_back(published.id);
  return names;
}

Machine known_machine(std::string_view name) {
  for (const Published& published : kPublished)
    if (published.id == name) return from_published(published);
  fail("[--hardware] '{}' is not known; use one of [{}], or leave it out for the run's device", name,
       join(known_machine_names()));
}

Machine machine_of(const HardwareFacts& facts, DType dtype) {
  if (facts.hardware == hardware::kCpu) return this_cpu(facts, dtype);
  for (const Published& published : kPublished)
    if (published.name == facts.name) {
      Machine known = from_published(published);
      known.facts = facts;
      return known;
    }
  fail(
      "[plan] nothing is published here of {}; measure its times with temper plan --measure FILE --device "
      "{}, "
      "or name another machine with --hardware (one of [{}])",
      facts.name, to_string(facts.device), join(known_machine_names()));
}

}  // namespace temper::recipes
