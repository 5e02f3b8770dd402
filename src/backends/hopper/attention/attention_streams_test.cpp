// Attention on several streams of a GPU at once; skipped where there is none.
#include <gtest/gtest.h>

#include <cmath>

#include "base/parts/rooms.h"
#include "device/cuda/stream.h"
#include "device/facts.h"
#include "device/transfer.h"
#include "tests/support/gpu.h"

namespace temper::backends::hopper {
namespace {

using ops::Attention;

constexpr Device kGpu{DeviceType::kCuda, 0};

Tensor waves(const Shape& shape, double step) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(step * static_cast<double>(i % 100003)));
  return Tensor::from(values).reshape(shape).to(DType::kBF16).on(kGpu);
}

std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  const Tensor here = tensor.contiguous().on({});
  const auto* begin = static_cast<const uint8_t*>(here.raw());
  return {begin, begin + here.bytes()};
}

// Each backward pass needs more than half of the GPU at once for blocks that wait for each other: two that
// shared it could wait forever.
TEST(HopperStreams, TwoBackwardPassesComeToTheirEnd) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  if (!is_built("backends", "cudnn")) GTEST_SKIP() << "forward is cuDNN's, which this build does not have";
  const HardwareFacts facts = detect_hardware("cuda:0");
  if (facts.compute_capability != 90) GTEST_SKIP() << "is for compute capability 9.0";
  const int64_t tokens = 256 * (facts.cores * 3 / 4), heads = 4, dim = 128;
  Attention op;
  op.q = waves({tokens, heads, dim}, 0.37);
  op.k = waves({tokens, 1, dim}, 0.11);
  op.v = waves({tokens, 1, dim}, 0.73);
  op.cu_seqlens_q = op.cu_seqlens_k = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(tokens)});
  op.scale = 0.08f;
  const Tensor dy = waves({tokens, heads, dim}, 0.59);
  const ops::Kernel<Attention> kernel =
      ops::completed(*ops::kernels<Attention>().find("hopper"), ops::kernels<Attention>().find("cudnn"), {});
  const Attention::Output out = kernel.forward(op, true);
  const Attention::Grads expected = kernel.backward(op, out, dy);
  synchronize(kGpu);
  { const device::StreamScope made(kGpu, 1); }
  std::vector<Attention::Grads> found;
  for (int round = 0; round < 4; ++round) {
    found.push_back(kernel.backward(op, out, dy));
    const device::StreamScope scope(kGpu, 1);
    found.push_back(kernel.backward(op, out, dy));
  }
  synchronize(kGpu);
  for (const Attention::Grads& grads : found) {
    EXPECT_EQ(bytes_of(grads.q), bytes_of(expected.q));
    EXPECT_EQ(bytes_of(grads.k), bytes_of(expected.k));
    EXPECT_EQ(bytes_of(grads.v), bytes_of(expected.v));
  }
}

}  // namespace
}  // namespace temper::backends::hopper
