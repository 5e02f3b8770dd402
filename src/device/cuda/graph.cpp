#include "device/cuda/graph.h"

#include "base/error.h"
#include "device/cuda/alone.h"

namespace temper::device {
namespace {

// A capture under way. One that is left early, by an error, is ended and thrown away.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    // Relaxed: the pool may map memory meanwhile.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  }
  ~Capture() {
    if (!finished_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (!finished_) cudaGetLastError();  // the capture's own error must not meet the next launch
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t finish() {
    finished_ = true;
    check(cudaStreamEndCapture(stream_, &graph_), "capturing a graph");
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool finished_ = false;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraph_t graph, Device gpu) : gpu_(gpu), captured_(stream(gpu)) {
    check(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
  }
  // What still runs is destroyed when it has run.
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void run() override {
    // Kernels may keep something for each stream.
    invariant(stream(gpu_) == captured_, "a graph on another stream than the one that was captured");
    const AloneScope alone(gpu_);  // kernels that need it may be in the graph
    check(cudaGraphLaunch(executable_, captured_), "cudaGraphLaunch");
  }

 private:
  const Device gpu_;
  const cudaStream_t captured_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::unique_ptr<Graph> capture_gpu(Device gpu, const std::function<void()>& work) {
  const cudaStream_t order = stream(gpu);
  refuse_in_capture(order, "a second capture");
  try {
    Capture capture(order);
    work();
    return std::make_unique<CudaGraph>(capture.finish(), gpu);
  } catch (const CannotCapture&) {
    // Earlier work that goes wrong meanwhile ends a capture, too: that is the error to show.
    check(cudaStreamSynchronize(order), "the GPU's work");
    throw;
  }
}

void refuse_in_capture(cudaStream_t stream, const char* what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone)
    throw CannotCapture(fmt::format("[cuda] {} inside a captured graph", what));
}

}  // namespace temper::device
