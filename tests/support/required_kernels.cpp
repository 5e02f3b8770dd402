#include "tests/support/required_kernels.h"

namespace temper::op_testing {
namespace {

const std::vector<DType> kWide{DType::kF32, DType::kBF16}, kFloat32{DType::kF32}, kBFloat16{DType::kBF16},
    kAll{DType::kF32, DType::kBF16, DType::kF16};
// Every processor alike: kernels choose their instructions themselves.
constexpr Where kCpu{hardware::kCpu};
constexpr Where kGpu{hardware::kGpu, 80}, kHopper{hardware::kGpu, 90, 90}, kFrom9{hardware::kGpu, 90, 99},
    kFrom10{hardware::kGpu, 100, 119};

bool takes_head(const ops::Attention::Signature& s, int64_t most) {
  return !s.sinks && s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.head_dim > 0 && s.head_dim % 8 == 0 &&
         s.head_dim <= most && !s.narrow_or_wide_values();
}
bool up_to_256(const ops::Attention::Signature& s) {
  const bool of_latents = s.head_dim == 192 && s.value_dim == 128;
  return takes_head(s, 256) || (of_latents && !s.sinks && s.kv_heads > 0 && s.heads % s.kv_heads == 0);
}
bool up_to_128(const ops::Attention::Signature& s) { return takes_head(s, 128); }

}  // namespace

template <>
const RequiredKernels<ops::AdamW>& required_kernels() {
  static const RequiredKernels<ops::AdamW> table{
      {}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::Attention>& required_kernels() {
  using S = ops::Attention::Signature;
  constexpr auto hopper = [](const S& s) { return up_to_128(s) && s.head_dim % 64 == 0; };
  static const RequiredKernels<ops::Attention> table{
      {.heads = 16, .kv_heads = 8, .head_dim = 128},
      kAll,
      {{"onednn", "onednn", kCpu, kWide},
       {"hopper", "cudnn", kHopper, kBFloat16, hopper},
       {"cudnn", "cudnn", kFrom9, kBFloat16, up_to_256},
       {"cudnn", "cudnn", kFrom10, kBFloat16, up_to_128},
       {"cudnn_nondeterministic", "cudnn", kFrom9, kBFloat16, up_to_256, true},
       {"cudnn_nondeterministic", "cudnn", kFrom10, kBFloat16, up_to_128, true},
       {"cuda_invariant", "cudnn", kHopper, kBFloat16,
        [](const S& s) { return up_to_256(s) && !s.narrow_or_wide_values(); }},
       {"cuda", "cuda", kGpu, kWide,
        [](const S& s) { return !s.sinks && s.head_dim <= 256 && !s.narrow_or_wide_values(); }}}};
  return table;
}

template <>
const RequiredKernels<ops::CausalConv1d>& required_kernels() {
  static const RequiredKernels<ops::CausalConv1d> table{
      {.channels = 8192, .width = 4},
      kAll,
      {{"simd", "simd", kCpu, kWide},
       {"cuda", "cuda", kGpu, kWide, [](const ops::CausalConv1d::Signature& s) { return s.width <= 8; }}}};
  return table;
}

template <>
const RequiredKernels<ops::CausalConv1dUpdate>& required_kernels() {
  static const RequiredKernels<ops::CausalConv1dUpdate> table{
      {.channels = 8192, .width = 4}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::DeltaGates>& required_kernels() {
  static const RequiredKernels<ops::DeltaGates> table{
      {.heads = 32}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::RecurrentGatedDeltaRule>& required_kernels() {
  static const RequiredKernels<ops::RecurrentGatedDeltaRule> table{
      {.key_heads = 16, .heads = 32, .key_dim = 128, .value_dim = 128},
      kAll,
      {{"simd", "simd", kCpu, kWide},
       {"cuda", "cuda", kGpu, kWide, [](const ops::RecurrentGatedDeltaRule::Signature& s) {
          return s.key_dim <= 256 && s.value_dim % 4 == 0;
        }}}};
  return table;
}

template <>
const RequiredKernels<ops::RmsNormGated>& required_kernels() {
  static const RequiredKernels<ops::RmsNormGated> table{
      {.dim = 128}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::ChunkGatedDeltaRule>& required_kernels() {
  using S = ops::ChunkGatedDeltaRule::Signature;
  constexpr auto on_tiles = [](const S& s) {
    return s.key_dim % 8 == 0 && s.value_dim % 8 == 0 && std::max(s.key_dim, s.value_dim) <= 128;
  };
  static const RequiredKernels<ops::ChunkGatedDeltaRule> table{
      {.key_heads = 16, .heads = 32, .key_dim = 128, .value_dim = 128},
      kAll,
      {{"onednn", "onednn", kCpu, kWide}, {"cuda", "cuda", kGpu, kBFloat16, on_tiles, false, 163 << 10}}};
  return table;
}

template <>
const RequiredKernels<ops::CrossEntropy>& required_kernels() {
  static const RequiredKernels<ops::CrossEntropy> table{
      {.hidden = 1024, .vocab = 151936},
      kAll,
      {{"onednn", "onednn", kCpu, kWide}, {"cublaslt", "cublaslt", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::DecodeAttention>& required_kernels() {
  using S = ops::DecodeAttention::Signature;
  constexpr auto heads = [](const S& s) {
    return !s.sinks && (s.head_dim <= 64 || (s.head_dim % 8 == 0 && s.head_dim <= 256));
  };
  static const RequiredKernels<ops::DecodeAttention> table{
      {.heads = 16, .kv_heads = 8, .head_dim = 128},
      kAll,
      {{"onednn", "onednn", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, heads}}};
  return table;
}

template <>
const RequiredKernels<ops::Dropout>& required_kernels() {
  static const RequiredKernels<ops::Dropout> table{
      {}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::Embedding>& required_kernels() {
  static const RequiredKernels<ops::Embedding> table{
      {.hidden = 1024}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::FakeQuantize>& required_kernels() {
  static const RequiredKernels<ops::FakeQuantize> table{
      {.format = {quant::kE4M3, quant::Scaling::kFloats}},
      kAll,
      {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::GlobalNorm>& required_kernels() {
  static const RequiredKernels<ops::GlobalNorm> table{
      {}, kWide, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::LatentDecode>& required_kernels() {
  using S = ops::LatentDecode::Signature;
  constexpr auto rows = [](const S& s) { return s.rank + s.rope_dim <= 576; };
  static const RequiredKernels<ops::LatentDecode> table{
      {.heads = 16, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = 512},
      kAll,
      {{"onednn", "onednn", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, rows}}};
  return table;
}

template <>
const RequiredKernels<ops::LatentHeads>& required_kernels() {
  static const RequiredKernels<ops::LatentHeads> table{
      {.nope_dim = 128, .rope_dim = 64, .value_dim = 128},
      kAll,
      {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::LatentRotary>& required_kernels() {
  static const RequiredKernels<ops::LatentRotary> table{
      {.head_dim = 192, .rope_dim = 64, .interleaved = true},
      kAll,
      {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::Linear>& required_kernels() {
  static const RequiredKernels<ops::Linear> table{{.in = 1024, .out = 3072},
                                                  kAll,
                                                  {{"onednn", "onednn", kCpu, kWide},
                                                   {"onednn_invariant", "onednn", kCpu, kFloat32},
                                                   {"cublaslt", "cublaslt", kGpu, kAll},
                                                   {"cublaslt_invariant", "cublaslt", kGpu, kBFloat16}}};
  return table;
}

template <>
const RequiredKernels<ops::LoraLinear>& required_kernels() {
  using S = ops::LoraLinear::Signature;
  constexpr auto hopper = [](const S& s) { return s.in % 8 == 0 && s.out % 8 == 0; };
  static const RequiredKernels<ops::LoraLinear> table{
      {.in = 1024, .out = 3072},
      kAll,
      {{"onednn", "onednn", kCpu, kWide},
       {"onednn_invariant", "onednn", kCpu, kFloat32},
       {"hopper", "hopper", kHopper, kBFloat16, hopper},
       {"hopper_invariant", "hopper", kHopper, kBFloat16, hopper},
       {"cublaslt", "cublaslt", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::PagedAttention>& required_kernels() {
  using S = ops::PagedAttention::Signature;
  static const RequiredKernels<ops::PagedAttention> table{{.heads = 16, .kv_heads = 8, .head_dim = 128},
                                                          kAll,
                                                          {{"onednn", "onednn", kCpu, kWide},
                                                           {"onednn_invariant", "onednn", kCpu, kFloat32},
                                                           {"cuda", "cuda", kGpu, kBFloat16, [](const S& s) {
                                                              return s.head_dim % 8 == 0 && s.head_dim <= 256;
                                                            }}}};
  return table;
}

template <>
const RequiredKernels<ops::RmsNorm>& required_kernels() {
  using S = ops::RmsNorm::Signature;
  constexpr auto width = [](const S& s) {
    return s.hidden <= 8192 || (s.hidden % 8 == 0 && s.hidden <= 32768);
  };
  static const RequiredKernels<ops::RmsNorm> table{
      {.hidden = 1024}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, width}}};
  return table;
}

template <>
const RequiredKernels<ops::Rotary>& required_kernels() {
  using S = ops::Rotary::Signature;
  constexpr auto heads = [](const S& s) {
    return s.head_dim <= 64 || (s.head_dim % 8 == 0 && s.head_dim <= 256 && s.unrotated % 8 == 0);
  };
  static const RequiredKernels<ops::Rotary> table{
      {.head_dim = 128, .qk_norm = true},
      kAll,
      {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, heads}}};
  return table;
}

template <>
const RequiredKernels<ops::Sample>& required_kernels() {
  using S = ops::Sample::Signature;
  constexpr auto vocab = [](const S& s) { return s.vocab > 0 && s.vocab <= 1 << 20; };
  static const RequiredKernels<ops::Sample> table{
      {.vocab = 151936}, kAll, {{"cuda", "cuda", kGpu, kWide, vocab}}};
  return table;
}

template <>
const RequiredKernels<ops::MoeRouter>& required_kernels() {
  constexpr auto few = [](const ops::MoeRouter::Signature& s) { return s.experts <= 1024; };
  static const RequiredKernels<ops::MoeRouter> table{
      {.experts = 128, .top_k = 8},
      kAll,
      {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, few}}};
  return table;
}

// Of both ops, whose kernels take the same.
template <class Op>
RequiredKernels<Op> experts_table() {
  const auto by_eights = [](const ops::MoeExperts::Signature& s) {
    return !s.biases && !s.clamped && s.hidden % 8 == 0 && s.width % 8 == 0;
  };
  const auto plain = [](const ops::MoeExperts::Signature& s) { return !s.biases && !s.clamped; };
  return {{.hidden = 2048, .width = 768, .experts = 128, .top_k = 8},
          kAll,
          {{"onednn", "onednn", kCpu, kWide},
           {"hopper", "hopper", kHopper, kBFloat16, by_eights},
           {"cuda", "cuda", kGpu, kAll, plain}}};
}

template <>
const RequiredKernels<ops::MoeExperts>& required_kernels() {
  static const auto table = experts_table<ops::MoeExperts>();
  return table;
}

template <>
const RequiredKernels<ops::LoraMoeExperts>& required_kernels() {
  static const auto table = experts_table<ops::LoraMoeExperts>();
  return table;
}

template <>
const RequiredKernels<ops::ExpertLinear>& required_kernels() {
  const auto by_eights = [](const ops::ExpertLinear::Signature& s) {
    return s.in % 8 == 0 && s.out % 8 == 0;
  };
  static const RequiredKernels<ops::ExpertLinear> table{{.in = 2048, .out = 768, .experts = 128},
                                                        kAll,
                                                        {{"onednn", "onednn", kCpu, kWide},
                                                         {"hopper", "hopper", kHopper, kBFloat16, by_eights},
                                                         {"cuda", "cuda", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::RoundedExperts>& required_kernels() {
  const auto by_eights = [](const ops::RoundedExperts::Signature& s) {
    return s.hidden % 8 == 0 && s.width % 8 == 0;
  };
  static const RequiredKernels<ops::RoundedExperts> table{
      {.hidden = 2048, .width = 768, .experts = 128, .top_k = 8},
      kAll,
      {{"hopper", "hopper", kHopper, kBFloat16, by_eights}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::LoadBalancingLoss>& required_kernels() {
  static const RequiredKernels<ops::LoadBalancingLoss> table{
      {.experts = 128}, kAll, {{"cuda", "cuda", kGpu, kAll}}};
  return table;
}

template <>
const RequiredKernels<ops::TokenLogProbs>& required_kernels() {
  static const RequiredKernels<ops::TokenLogProbs> table{
      {.vocab = 151936}, kAll, {{"cuda", "cuda", kGpu, kWide}}};
  return table;
}

template <>
const RequiredKernels<ops::Swiglu>& required_kernels() {
  static const RequiredKernels<ops::Swiglu> table{
      {.intermediate = 3072}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};
  return table;
}

}  // namespace temper::op_testing
