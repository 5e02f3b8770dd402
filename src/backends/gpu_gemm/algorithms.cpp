#include "backends/gpu_gemm/algorithms.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/timed_choices.h"
#include "base/error.h"
#include "base/text.h"
#include "device/cuda/stream.h"

namespace temper::backends {
namespace {

constexpr int kSuggestions = 8;
constexpr int kTimedRuns = 5;
// Below so many operations the choice does not matter: the first suggestion is taken.
constexpr double kWorthMeasuring = 1e9;

using Suggestions = std::array<cublasLtMatmulHeuristicResult_t, kSuggestions>;

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const T& value) {
  check(cublaslt().desc_set(desc, name, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublaslt().layout_create(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                 stride),
        "cublasLtMatrixLayoutCreate");
  return made;
}

// Where algorithms are chosen. Called with the plans' mutex.
std::string gpu_and_library(Device device) {
  static std::map<int, std::string> names;
  std::string& name = names[device.index];
  if (name.empty()) {
    cudaDeviceProp properties{};
    device::check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
    name = fmt::format("{}, cuBLASLt {}", properties.name, cublaslt().version());
  }
  return name;
}

// An algorithm is opaque words, written as "1f 0 …".
std::string words_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<std::string> words;
  for (const uint64_t word : algorithm.data) words.push_back(fmt::format("{:x}", word));
  return join(words, " ");
}

bool algorithm_of(const std::string& words, cublasLtMatmulAlgo_t& algorithm) {
  const char* at = words.c_str();
  for (uint64_t& word : algorithm.data) {
    char* end = nullptr;
    word = std::strtoull(at, &end, 16);
    if (end == at) return false;
    at = end;
  }
  return *at == '\0';
}

// Times what is launched between start() and stop() on one stream.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    device::check(cudaEventCreate(&start_), "cudaEventCreate");
    device::check(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  void start() { device::check(cudaEventRecord(start_, stream_), "cudaEventRecord"); }
  float stop() {
    device::check(cudaEventRecord(stop_, stream_), "cudaEventRecord");
    device::check(cudaEventSynchronize(stop_), "measuring a product");
    float milliseconds = 0;
    device::check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

// A shape's descriptors and the algorithm chosen for it.
class Plan {
 public:
  explicit Plan(const ProductShape& shape);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void choose(const ProductCall& call, Device device);
  void run(const ProductCall& call, Device device) const {
    check(launch(call, algorithm_, device), ("the product " + shape_.key()).c_str());
  }

 private:
  bool take(const std::string& words, Device device);
  int suggest(const ProductCall& call, Device device, Suggestions& found) const;
  void measure(const ProductCall& call, Device device, const Suggestions& suggestions, int count);
  cublasStatus_t launch(const ProductCall& call, const cublasLtMatmulAlgo_t& algorithm, Device device) const;

  ProductShape shape_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

Plan::Plan(const ProductShape& shape) : shape_(shape) {
  check(cublaslt().desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (shape.bias) {
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(desc_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, shape.out);
  }
  a_ = layout(shape.in, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k,
              shape.lda);
  b_ = layout(shape.in, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n,
              shape.ldb);
  d_ = layout(shape.out, shape.m, shape.n, shape.ldd);
}

Plan::~Plan() {
  cublaslt().layout_destroy(a_);
  cublaslt().layout_destroy(b_);
  cublaslt().layout_destroy(d_);
  cublaslt().desc_destroy(desc_);
}

cublasStatus_t Plan::launch(const ProductCall& call, const cublasLtMatmulAlgo_t& algorithm,
                            Device device) const {
  const float beta = shape_.accumulate ? 1 : 0;
  if (shape_.bias) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  return cublaslt().matmul(cublaslt_handle(device), desc_, &call.scale, call.a, a_, call.b, b_, &beta, call.d,
                           d_, call.d, d_, &algorithm, call.workspace, kProductWorkspace,
                           device::stream(device));
}

int Plan::suggest(const ProductCall& call, Device device, Suggestions& found) const {
  if (shape_.bias) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublaslt().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(cublaslt().preference_set(preference, name, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspace));
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(name, shape_.alignment);
  int count = 0;
  const cublasStatus_t status = cublaslt().heuristic(cublaslt_handle(device), desc_, a_, b_, d_, d_,
                                                     preference, kSuggestions, found.data(), &count);
  cublaslt().preference_destroy(preference);
  check(status, "choosing an algorithm");
  if (count == 0) fail_resources("[cublaslt] no algorithm computes {}", shape_.key());
  return count;
}

// Whether the text is an algorithm that the library runs for this shape, which it becomes then.
bool Plan::take(const std::string& words, Device device) {
  cublasLtMatmulAlgo_t given{};
  cublasLtMatmulHeuristicResult_t found{};
  if (!algorithm_of(words, given) ||
      cublaslt().check(cublaslt_handle(device), desc_, a_, b_, d_, d_, &given, &found) !=
          CUBLAS_STATUS_SUCCESS ||
      found.workspaceSize > static_cast<size_t>(kProductWorkspace))
    return false;
  algorithm_ = given;
  return true;
}

void Plan::choose(const ProductCall& call, Device device) {
  const std::string where = gpu_and_library(device);
  if (const auto kept = product_choices().recall(where, shape_.key())) {
    if (take(*kept, device)) return;
    product_choices().refuse(where, shape_.key(), "does not run any more");
  }
  Suggestions found{};
  const int count = suggest(call, device, found);
  algorithm_ = found[0].algo;
  const double operations =
      2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k);
  if (operations < kWorthMeasuring) return;
  measure(call, device, found, count);
  product_choices().remember(where, shape_.key(), words_of(algorithm_));
}

void Plan::measure(const ProductCall& call, Device device, const Suggestions& suggestions, int count) {
  const cudaStream_t stream = device::stream(device);
  Stopwatch watch(stream);
  ProductCall trial = call;
  void* scratch = nullptr;
  if (shape_.accumulate) {  // what is accumulated must not be counted twice: tries write elsewhere
    const auto bytes = static_cast<size_t>(shape_.ldd * shape_.n) * (shape_.out == CUDA_R_32F ? 4 : 2);
    if (cudaMallocAsync(&scratch, bytes, stream) != cudaSuccess) {
      cudaGetLastError();
      return;  // memory is short: the first suggestion serves
    }
    trial.d = scratch;
  }
  float best = 0;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& suggestion = suggestions[static_cast<size_t>(i)];
    if (suggestion.state != CUBLAS_STATUS_SUCCESS) continue;
    if (launch(trial, suggestion.algo, device) != CUBLAS_STATUS_SUCCESS) continue;
    std::array<float, kTimedRuns> times{};
    for (float& time : times) {
      watch.start();
      check(launch(trial, suggestion.algo, device), "a matrix product");
      time = watch.stop();
    }
    std::sort(times.begin(), times.end());
    if (best != 0 && times[kTimedRuns / 2] >= best) continue;
    best = times[kTimedRuns / 2];
    algorithm_ = suggestion.algo;
  }
  if (scratch != nullptr) device::check(cudaFreeAsync(scratch, stream), "cudaFreeAsync");
}

}  // namespace

std::string ProductShape::key() const {
  return fmt::format("{}x{}x{} {}{} {} {} {} {}>{} /{}{}{}", m, n, k, transpose_a ? 't' : 'n',
                     transpose_b ? 't' : 'n', lda, ldb, ldd, static_cast<int>(in), static_cast<int>(out),
                     alignment, accumulate ? " +=" : "", bias ? " bias" : "");
}

void run_product(const ProductShape& shape, const ProductCall& call, Device device) {
  static std::mutex mutex;
  static std::map<std::pair<int, ProductShape>, std::unique_ptr<Plan>> plans;
  static int64_t generation = 0;
  const std::lock_guard lock(mutex);
  // Another run has algorithms of its own.
  if (const int64_t now = product_choices().generation(); std::exchange(generation, now) != now)
    plans.clear();
  std::unique_ptr<Plan>& plan = plans[{device.index, shape}];
  if (plan == nullptr) {
    auto made = std::make_unique<Plan>(shape);
    made->choose(call, device);
    plan = std::move(made);
  }
  plan->run(call, device);
}

}  // namespace temper::backends
