#pragma once
#include <string>
#include <vector>

namespace temper {

// Instruction sets that kernels may use, of those that decide about one: "avx2", "fma", "f16c", "avx512f",
// "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_bf16", "amx_tile". What the processor and the
// system offer, within the limit that oneDNN's environment variable ONEDNN_MAX_CPU_ISA sets for its own code
// (SSE41, AVX, AVX2, AVX512_CORE, AVX512_CORE_BF16, … ; other values are no limit here). Empty on other
// architectures than x86-64. Read once for a process.
const std::vector<std::string>& cpu_features();

bool has_cpu_feature(std::string_view name);

// The same under a limit, for tests: `limit` as the variable's value.
std::vector<std::string> cpu_features_within(std::string_view limit);

}  // namespace temper
