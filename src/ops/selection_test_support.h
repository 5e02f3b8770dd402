#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/report.h"
#include "tests/support/op_testing.h"

// Ops, kernels and hardware that tests of the selection share.
namespace temper::ops::selection_testing {

// An op of these tests alone: it returns the number of the kernel that ran.
struct Probe {
  static constexpr std::string_view kName = "probe", kField = "probe";
  struct Signature {
    int64_t width = 0;
  };
  using Forward = int();
  using Backward = void();
  using Compose = int();
};
using Use = OpUse<Probe::Signature>;

// A second one, so that a model has two fields.
struct Filter {
  static constexpr std::string_view kName = "filter", kField = "filter_mlp";
  struct Signature {};
  using Forward = int();
  using Backward = void();
  using Compose = int();
};

inline Refusal narrow_only(const Probe::Signature& signature, const HardwareFacts&) {
  if (signature.width > 256) return fmt::format("width {} must be at most 256", signature.width);
  return std::nullopt;
}

inline Refusal native_bf16_only(const Probe::Signature&, const HardwareFacts& facts) {
  if (!facts.native_bf16) return "needs bfloat16 products in hardware";
  return std::nullopt;
}

// 230,048 bytes for the large tile, a quarter of it for the small one.
inline std::vector<Tiling> probe_tilings(const Probe::Signature& signature) {
  const int64_t scale = signature.width >= 1024 ? 4 : 1;
  return {{"128x128", scale * 1840384}, {"64x64", scale * 460096}};
}

inline const Kernel<Probe>& batch_invariant() {
  static const Kernel<Probe> kernel{.accepts = accept_all<Probe::Signature>, .forward = [] { return 7; }};
  return kernel;
}

// In order of preference: fast, narrow, device (a gpu's), tiled (an npu's), eager, spare.
inline void register_probe() {
  auto& registry = kernels<Probe>();
  if (registry.find("fast") != nullptr) return;
  registry.add("fast", {.accepts = native_bf16_only, .forward = [] { return 1; }});
  registry.add("narrow", {.accepts = narrow_only, .forward = [] { return 2; }});
  registry.add("device", {.hardware = hardware::kGpu, .accepts = accept_all<Probe::Signature>, .forward = [] {
                            return 3;
                          }});
  registry.add("tiled", {.hardware = "strict",
                         .accepts = accept_all<Probe::Signature>,
                         .forward = [] { return 8; },
                         .tilings = probe_tilings});
  register_op<Probe>([] { return 4; });
  register_op<Filter>([] { return 6; });
  registry.add("spare", {.accepts = narrow_only, .forward = [] { return 5; }});
  HardwareTable strict = hardware_table(hardware::kNpu);
  strict.label = "Strict NPU";
  strict.fields["probe"] = {{{"tiled", "tiled"}, {"packed", "tiled", "toolkit"}}};
  hardware_tables().add("strict", strict);
  registry.add_before(
      kEager, "unnamed",
      {.hardware = "strict", .accepts = accept_all<Probe::Signature>, .forward = [] { return 9; }});
  FamilyTable family;
  family.disabled = {{"probe", "spare", "no kernel matching this backend's signature"},
                     {"probe", "device", "it has another layout"}};
  family.added = {{"probe", {"invariant", "invariant"}, "cpu", &batch_invariant()}};
  family_tables().add("probe_family", family);
}

inline HardwareFacts machine(bool native_bf16 = false) {
  register_probe();
  HardwareFacts facts;
  facts.native_bf16 = native_bf16;
  return facts;
}

inline HardwareFacts known(const char* name) {
  register_probe();
  HardwareFacts facts = known_hardware(name);
  if (facts.hardware == hardware::kNpu) facts.hardware = "strict";
  return facts;
}

inline OpsConfig written(const std::string& field, const std::string& provider) {
  return {.written = {{field, provider}}};
}

// Every field that an NPU demands, so that the probe's can be tried there.
inline OpsConfig on_npu(const std::string& field = "", const std::string& provider = "") {
  OpsConfig config{.written = hardware_table(hardware::kNpu).suggested};
  if (!field.empty()) config.written[field] = provider;
  return config;
}

inline BoundOps bind(const OpsConfig& config, const HardwareFacts& facts, const std::vector<int64_t>& widths,
                     const std::string& family = "") {
  std::vector<Probe::Signature> signatures;
  for (const int64_t width : widths) signatures.push_back({width});
  Binder binder(config, facts, family);
  binder.bind<Probe>(signatures);
  return binder.finish();
}

inline int run(Bound<Probe> bound) {
  const Kernel<Probe>& kernel = *bound;
  return kernel.compose != nullptr ? kernel.compose() : kernel.forward();
}

// A line of a report, and what it says of kernels that were not chosen.
inline std::string line(const std::string& field, const std::string& provider, const std::string& why) {
  return fmt::format("{:<37} {:<8} {}\n", field, provider, why);
}
inline std::string note(const std::string& text) { return fmt::format("{:<37} {}\n", "", text); }
inline const std::string kNotFast = note("not fast: needs bfloat16 products in hardware");
inline const std::string kNotNarrow = note("not narrow: width 512 must be at most 256");
inline const std::string kElsewhere = note("not device: is for gpu, this is cpu") +
                                      note("not tiled: is for strict, this is cpu") +
                                      note("not unnamed: is for strict, this is cpu");

inline std::string report(const OpsConfig& config, const HardwareFacts& facts, int64_t width) {
  return explain(bind(config, facts, {width}).choices(), facts);
}

}  // namespace temper::ops::selection_testing
