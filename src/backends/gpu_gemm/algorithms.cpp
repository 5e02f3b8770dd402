#include "backends/gpu_gemm/algorithms.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "backends/timed_choices.h"
#include "base/error.h"
#include "base/text.h"
#include "device/cuda/stream.h"

namespace temper::backends {
namespace {

constexpr int kSuggestions = 8, kMostSuggestions = 24;
constexpr int kTimedRuns = 5;
// Products with `alike` have the bits of the library's first suggestion for this number of rows. For fewer
// rows it would suggest algorithms that are slow without a reduction, and those for this number of rows leave
// enough to choose from.
constexpr int64_t kRowsAlike = 128;
// Below this number of operations the choice does not matter: the first suggestion is taken.
constexpr double kWorthMeasuring = 1e9;

using Suggestions = std::array<cublasLtMatmulHeuristicResult_t, kMostSuggestions>;

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

size_t width_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

// The operands that algorithms are tried with. Accumulated results must not be counted twice, so that tries
// write to memory of their own. Whether algorithms sum in the same order can be seen only if no operand is 0:
// for `alike` the call's operands are replaced by made-up numbers, except weights of more than kLargestOwn
// bytes, which are never all 0 in a model.
class Trial {
 public:
  Trial(const ProductShape& shape, const ProductCall& call, cudaStream_t stream)
      : call_(call), stream_(stream) {
    const auto bytes = [](int64_t stride, int64_t rows, cudaDataType_t type) {
      return static_cast<size_t>(stride * rows) * width_of(type);
    };
    const size_t a = bytes(shape.lda, shape.transpose_a ? shape.m : shape.k, shape.in);
    const int64_t n = shape.alike ? std::max(shape.n, kRowsAlike) : shape.n;
    if (shape.alike) {
      if (a <= kLargestOwn) call_.a = own(a);
      call_.b = own(bytes(shape.ldb, shape.transpose_b ? shape.k : n, shape.in));
    }
    if (shape.accumulate || n > shape.n) call_.d = own(sum_bytes_ = bytes(shape.ldd, n, shape.out));
    fills_sums_ = shape.alike && shape.accumulate;
    if (shape.alike)
      for (const auto& [memory, size] : owned_) fill(memory, size);
  }
  ~Trial() {
    for (const auto& [memory, size] : owned_) device::check(cudaFreeAsync(memory, stream_), "cudaFreeAsync");
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool complete() const { return complete_; }
  const ProductCall& call() const { return call_; }
  // With the same numbers each time.
  const ProductCall& begin() {
    if (fills_sums_ && complete_) fill(call_.d, sum_bytes_);
    return call_;
  }

 private:
  static constexpr size_t kLargestOwn = size_t{256} << 20, kBlock = 2 * 65521;

  void* own(size_t bytes) {
    void* memory = nullptr;
    if (cudaMallocAsync(&memory, bytes, stream_) != cudaSuccess) {
      cudaGetLastError();
      complete_ = false;
      return memory;
    }
    owned_.emplace_back(memory, bytes);
    return memory;
  }

  // Numbers from 1/2 to 2 of both signs as bfloat16, which are such as halves of a float32, too.
  void fill(void* memory, size_t bytes) const {
    static const std::vector<uint16_t> block = [] {
      std::vector<uint16_t> made(kBlock / 2);
      std::minstd_rand random;
      for (uint16_t& each : made) {
        const auto bits = static_cast<uint32_t>(random() >> 8);
        each = static_cast<uint16_t>((bits & 0x80FFu) + 0x3F00u);
      }
      return made;
    }();
    auto* const to = static_cast<std::byte*>(memory);
    size_t done = std::min(bytes, kBlock);
    device::check(cudaMemcpyAsync(to, block.data(), done, cudaMemcpyHostToDevice, stream_),
                  "trying products");
    for (; done < bytes; done *= 2)
      device::check(
          cudaMemcpyAsync(to + done, to, std::min(done, bytes - done), cudaMemcpyDeviceToDevice, stream_),
          "trying products");
  }

  ProductCall call_;
  cudaStream_t stream_;
  std::vector<std::pair<void*, size_t>> owned_;
  size_t sum_bytes_ = 0;
  bool complete_ = true, fills_sums_ = false;
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
  int suggest(const ProductCall& call, Device device, Suggestions& found, int most = kSuggestions) const;
  ProductShape of_rows_alike() const {
    ProductShape shape = shape_;
    shape.n = kRowsAlike;
    return shape;
  }
  std::vector<std::byte> first_rows(const ProductCall& call, Device device) const;
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

int Plan::suggest(const ProductCall& call, Device device, Suggestions& found, int most) const {
  if (shape_.bias) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublaslt().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check(cublaslt().preference_set(preference, name, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspace));
  // With split-K, the library chooses the number of parts of a sum by what fills the GPU for this number of
  // rows.
  if (shape_.alike)
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(name, shape_.alignment);
  int count = 0;
  const cublasStatus_t status = cublaslt().heuristic(cublaslt_handle(device), desc_, a_, b_, d_, d_,
                                                     preference, most, found.data(), &count);
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
  const int count = shape_.alike && shape_.n < kRowsAlike
                        ? Plan(of_rows_alike()).suggest(call, device, found, kMostSuggestions)
                        : suggest(call, device, found);
  algorithm_ = found[0].algo;
  const double operations =
      2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k);
  if (operations < kWorthMeasuring && !shape_.alike) return;
  measure(call, device, found, count);
  product_choices().remember(where, shape_.key(), words_of(algorithm_));
}

// What a product computes, as far as kRowsAlike rows have it.
std::vector<std::byte> Plan::first_rows(const ProductCall& call, Device device) const {
  const size_t each = width_of(shape_.out), width = static_cast<size_t>(shape_.m) * each;
  const auto count = static_cast<size_t>(std::min(shape_.n, kRowsAlike));
  std::vector<std::byte> rows(width * count);
  device::check(cudaMemcpy2DAsync(rows.data(), width, call.d, static_cast<size_t>(shape_.ldd) * each, width,
                                  count, cudaMemcpyDeviceToHost, device::stream(device)),
                "reading rows of a product");
  device::check(cudaStreamSynchronize(device::stream(device)), "reading rows of a product");
  return rows;
}

void Plan::measure(const ProductCall& call, Device device, const Suggestions& suggestions, int count) {
  const cudaStream_t stream = device::stream(device);
  Stopwatch watch(stream);
  Trial trial(shape_, call, stream);
  std::vector<std::byte> wanted;
  if (shape_.alike) {
    const Plan reference(of_rows_alike());
    Suggestions first{};
    reference.suggest(call, device, first);
    algorithm_ = first[0].algo;
    if (!trial.complete()) return;
    check(reference.launch(trial.begin(), algorithm_, device), shape_.key().c_str());
    wanted = first_rows(trial.call(), device);
  }
  if (!trial.complete()) return;  // memory is short: the first suggestion serves
  float best = 0;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& suggestion = suggestions[static_cast<size_t>(i)];
    if (suggestion.state != CUBLAS_STATUS_SUCCESS) continue;
    if (launch(trial.begin(), suggestion.algo, device) != CUBLAS_STATUS_SUCCESS) continue;
    if (shape_.alike && first_rows(trial.call(), device) != wanted) continue;
    std::array<float, kTimedRuns> times{};
    for (float& time : times) {
      watch.start();
      check(launch(trial.call(), suggestion.algo, device), "a matrix product");
      time = watch.stop();
    }
    std::sort(times.begin(), times.end());
    if (best != 0 && times[kTimedRuns / 2] >= best) continue;
    best = times[kTimedRuns / 2];
    algorithm_ = suggestion.algo;
  }
}

}  // namespace

std::string ProductShape::key() const {
  return fmt::format("{}x{}x{} {}{} {} {} {} {}>{} /{}{}{}{}", m, n, k, transpose_a ? 't' : 'n',
                     transpose_b ? 't' : 'n', lda, ldb, ldd, static_cast<int>(in), static_cast<int>(out),
                     alignment, accumulate ? " +=" : "", bias ? " bias" : "", alike ? " alike" : "");
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
