#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "ops/selection.h"
#include "primitives/quantized.h"
#include "tests/support/required_kernels.h"

// One loop that tests every kernel of an op, forward and backward, against plain loops in double, on the CPU
// and on a GPU where there is one. A test states the op once as a Case; kernels that are registered later are
// tested without a new line.
namespace temper::op_testing {

using Doubles = std::vector<double>;

Doubles normal(uint64_t seed, const Shape& shape, double scale = 1, double mean = 0);
Tensor tensor_of(const Doubles& values, const Shape& shape, DType dtype);  // rounded to dtype
Tensor ints(const std::vector<int32_t>& values);
Doubles values_of(const Tensor& tensor);              // of any strides, on any device, in row-major order
std::vector<uint32_t> bits_of(const Tensor& tensor);  // the same as float32 has them; NaN has one

// What a case's `run` captured, where the case's inputs are: ids, tables and the like.
inline Tensor on_device_of(const Var& input, const Tensor& tensor) { return tensor.on(input.value.device()); }
// A frozen matrix in 8 bits (primitives/quantized.h), there too, and what its codes mean.
primitives::Matrix in_8_bits(const Var& input, const Doubles& values, const Shape& shape);
Doubles meaning_in_8_bits(const Doubles& values, const Shape& shape);

// NaN around an input along one dimension: it becomes a strided view, and reading beyond it shows.
struct Padding {
  int dim = 0;
  int64_t before = 0, after = 0;
};
Tensor padded_tensor_of(const Doubles& values, const Shape& shape, DType dtype, const Padding& padding,
                        Device device = {});

enum class Role {
  kVariable,   // a value of the forward pass: its gradient has its dtype
  kParameter,  // trained: its gradient accumulates in a buffer that stays, float32 or bfloat16
};

struct Input {
  std::string name = {};
  Shape shape = {};
  Doubles values = {};
  Role role = Role::kVariable;
  std::optional<Padding> padding = {};
};

struct Result {
  Var y = {};
  std::vector<Tensor> others = {};  // compared with the reference, not differentiated
};

struct Case {
  std::string name = {};
  std::vector<Input> inputs = {};
  // From the inputs' values to the values of y and then of the others.
  std::function<Doubles(const std::vector<Doubles>&)> reference = {};
  std::function<Result(Tape&, const ops::BoundOps&, const std::vector<Var>&)> run = {};
  int64_t terms = 1;       // the longest sum in the op: float32 tolerances grow with its square root
  int64_t samples = 16;    // elements per input compared with central differences; smaller inputs: all
  double floor = 1e-3;     // errors are relative to the tensor's largest value, but at least to this
  double roundings = 1;    // to a 16-bit dtype, on the way to y
  bool root = false;       // y is a loss: backward starts there, with 1
  bool view = false;       // y may be a strided view
  bool inference = false;  // the op has no gradient
  int repeats = 1;         // of passes of fast kernels, which must all give the same bits
};

struct BoundKernel {
  std::string provider;
  ops::BoundOps ops;
  Device device = {};  // where its tensors are
  bool deterministic = true;
};

// Forward and gradients of each kernel on one dtype; gradients are also compared in full with `baseline`, a
// float32 run of the composition on the same rounded inputs. Checks accumulation, frozen inputs, inference,
// strided seeds, and that results are the same bits for a second run and for one thread.
void check_case(const Case& c, DType dtype, const ops::BoundOps& baseline,
                const std::vector<BoundKernel>& kernels);
// A case that asks for no op, in each dtype on each of the machines.
void check_primitives(const Case& c);

// The message must be exactly this.
void expect_error(const std::function<void()>& call, std::string_view message);

// Every found value within tolerance · max(floor, largest expected); all of them finite.
testing::AssertionResult close(const Doubles& found, const Doubles& expected, double tolerance,
                               double floor = 0);

// Sets the number of threads as long as it lives.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

const HardwareFacts& facts();                  // of this machine's CPU
const std::vector<HardwareFacts>& machines();  // the CPU's, and the GPU's where there is one
// Kernels on a GPU that TEMPER_TEST_LEAVE_OUT names ("eager,cudnn"): tools/sanitize_gpu.sh leaves out
// `eager`, thousands of launches of primitives, which have a test of their own.
bool is_left_out(std::string_view provider, const HardwareFacts& machine);
void report_refusal(std::string_view op, std::string_view provider, std::string_view sentence);

template <class Op>
ops::BoundOps bind_kernel(const std::string& provider, const typename Op::Signature& signature,
                          const HardwareFacts& machine = facts()) {
  ops::OpsConfig config;
  config.fallback = provider;
  ops::Binder binder(config, machine);
  binder.bind<Op>({signature});
  return binder.finish();
}

// Every registered kernel that accepts the signature. Refusals are printed; one of eager, or of a kernel that
// must accept it (required_kernels.h), is a failure.
template <class Op>
std::vector<BoundKernel> bind_every_kernel(const typename Op::Signature& signature,
                                           const HardwareFacts& machine = facts()) {
  std::vector<BoundKernel> bound;
  for (const auto& entry : ops::kernels<Op>().entries()) {
    if (is_left_out(entry.name, machine)) continue;
    try {
      bound.push_back({entry.name, bind_kernel<Op>(entry.name, signature, machine), machine.device,
                       entry.value.deterministic});
    } catch (const Error& error) {
      report_refusal(Op::kName, entry.name, error.what());
    }
  }
  for (const RequiredKernel<Op>& line : required_table<Op>().kernels) {
    const bool runs = std::any_of(bound.begin(), bound.end(), [&](const BoundKernel& kernel) {
      return kernel.provider == line.provider;
    });
    EXPECT_TRUE(runs || is_left_out(line.provider, machine) || !line.must_accept(signature, machine))
        << fmt::format("{} {} must accept this signature in {} on {}", Op::kName, line.provider,
                       to_string(dtype_in(signature)), machine.name);
  }
  return bound;
}

// On each of the machines.
template <class Op>
std::vector<BoundKernel> bind_everywhere(const typename Op::Signature& signature) {
  std::vector<BoundKernel> bound;
  for (const HardwareFacts& machine : machines())
    for (BoundKernel& kernel : bind_every_kernel<Op>(signature, machine)) bound.push_back(std::move(kernel));
  return bound;
}

template <class Op>
void check_every_kernel(const Case& c, typename Op::Signature signature) {
  signature.dtype = DType::kF32;
  const ops::BoundOps baseline = bind_kernel<Op>(std::string(ops::kEager), signature);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    signature.dtype = dtype;
    check_case(c, dtype, baseline, bind_everywhere<Op>(signature));
  }
}

}  // namespace temper::op_testing
