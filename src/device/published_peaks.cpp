#include "device/facts.h"

namespace temper {
namespace {

struct Peak {
  std::string_view prefix;  // of the name that CUDA gives
  double teraflops;         // dense: half of what is published with sparsity
};

// NVIDIA's data sheets of the H100, H200 (bfloat16 1979 with sparsity, SXM) and A100 (312 dense, SXM and
// PCIe). Their PCIe and NVL variants have other peaks and other names.
constexpr Peak kPeaks[] = {
    {"NVIDIA H100 80GB HBM3", 989}, {"NVIDIA A100-", 312}, {"NVIDIA A100 80GB PCIe", 312}};
constexpr std::string_view kH200 = "NVIDIA H200";  // the NVL variant's name is longer

}  // namespace

double published_bf16_peak(std::string_view name) {
  if (name == kH200) return 989e12;
  for (const Peak& peak : kPeaks)
    if (name.starts_with(peak.prefix)) return peak.teraflops * 1e12;
  return 0;
}

}  // namespace temper
