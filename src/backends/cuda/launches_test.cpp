// How many kernels the GPU is given, as a captured graph has them.
#include <cuda_runtime.h>

#include <algorithm>

#include "device/cuda/stream.h"
#include "device/facts.h"
#include "ops/fake_quantize/fake_quantize.h"
#include "quant/number_format.h"
#include "tensor/arena.h"
#include "tests/support/gpu.h"
#include "tests/support/op_testing.h"

namespace temper::backends {
namespace {

using ops::FakeQuantize;

constexpr Device kCountedGpu{DeviceType::kCuda, 0};

int64_t kernels_in(cudaGraph_t graph) {
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  return std::ranges::count_if(nodes, [](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    return cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
  });
}

template <class F>
int64_t kernel_launches_of(const F& work) {
  work();  // what is found or allocated once
  Arena arena(kCountedGpu);
  const Arena::Scope scope(arena);
  const cudaStream_t stream = device::stream(kCountedGpu);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  work();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  const int64_t count = kernels_in(graph);
  cudaGraphDestroy(graph);
  return count;
}

// Weights of all experts of a layer are rounded by one launch, each with its amax or with one for all.
TEST(CudaLaunches, AllExpertsAreOne) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const HardwareFacts gpu = detect_hardware("cuda:0");
  for (const char* name : {"fp8", "int8", "nvfp4"}) {
    const quant::Format& format = quant::format_named(name);
    const bool clips = !format.has_blocks();
    const ops::BoundOps bound = op_testing::bind_kernel<FakeQuantize>("cuda", {DType::kBF16, format}, gpu);
    for (const int64_t experts : {2, 64})
      for (const int64_t amax_of : {int64_t{1}, experts}) {
        if (format.has_blocks() && amax_of == 1) continue;  // such a format has one for each matrix
        const Tensor x = Tensor::zeros({experts, 64, 128}, DType::kBF16).on(kCountedGpu);
        const Tensor amax =
            Tensor::from<float>(std::vector<float>(static_cast<size_t>(amax_of), 1.5f), {amax_of, 1, 1});
        const Tensor there = amax.on(kCountedGpu);
        EXPECT_EQ(kernel_launches_of([&] {
                    Tape tape(false);
                    ops::fake_quantize(tape, bound, tape.constant(x), there, format, clips);
                  }),
                  1)
            << name << ", " << experts << " experts, " << amax_of << " amax";
      }
  }
}

}  // namespace
}  // namespace temper::backends
