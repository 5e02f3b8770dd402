#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/tracing/trace.h"
#include "bench/shapes.h"
#include "device/facts.h"
#include "ops/selection.h"

// What the benchmarks share. All run on one device, that of machine(). Each file registers its ops for every
// provider once main() has filled the lists. Names are op/kernel/dtype/size/pass.
namespace temper::bench {

void add_adamw();
void add_attention();
void add_chunk_gated_delta_rule();
void add_cross_entropy();
void add_delta_rows();
void add_embedding();
void add_fake_quantize();
void add_global_norm();
void add_dropout();
void add_linear();
void add_lora_linear();
void add_recurrent_gated_delta_rule();
void add_residual_norm();
void add_rms_norm();
void add_rotary();
void add_paged_attention();
void add_sample();
void add_swiglu();
void add_probes();  // of the ops that none of the others measures

inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

// The CPU, unless --device named another before the lists were filled.
HardwareFacts& machine();
bool on_cpu();
// By name, those that for_each_provider was asked for.
std::set<std::string, std::less<>>& measured_ops();

// A model, and the tokens of its products: on a CPU fewer where each costs more, so that all sizes take
// seconds; on a GPU those of a training step.
struct Size {
  BenchShape model;
  int64_t tokens;
  bool eager = false;  // compositions are slow: only the least of the models has theirs measured
  int64_t qkv() const { return (model.heads + 2 * model.kv_heads) * model.head_dim; }
};
std::vector<Size> sizes();

// Of ops whose work grows with the numbers alone: on a CPU as many tokens for every size.
inline int64_t row_tokens(const Size& size) { return on_cpu() ? 2048 : size.tokens; }

Tensor filled(Shape shape, DType dtype);       // with numbers from -1 to 1
Tensor numbers(int64_t count, int64_t limit);  // [count] int32 below the limit
Tensor zeros(const Shape& shape, DType dtype);
Var input(Tape& tape, const Tensor& value);  // has a gradient where the tape records
Var parameter(Tape& tape, const Tensor& value, const Tensor& gradient);  // which is kept in `gradient`
Tensor gradient_of(const Tensor& parameter);                             // float32 zeros

// What is timed. `before`, which makes what `run` uses up, is not; on a device several are made ahead.
struct Timed {
  std::function<void()> run, before = {};
  trace::Work work = {};  // of ops that do not say it themselves
};

// The op says itself how much work it is (trace::Work), and is compared with this machine's peak: of products
// in `dtype`, or of memory, whichever it would reach later.
void add(const std::string& name, DType dtype, const std::function<Timed()>& prepare);

// Both passes of an op on a tape. `prepare` makes its inputs and gives what builds its output from them.
using Build = std::function<Var(Tape&)>;
void add_forward(const std::string& name, DType dtype, const std::function<Build()>& prepare);
void add_backward(const std::string& name, DType dtype, const std::function<Build()>& prepare,
                  const TapeOptions& options);
void add_passes(const std::string& name, DType dtype, const std::function<Build()>& prepare);
void add_passes_that_keep_states(const std::string& name, DType dtype, const std::function<Build()>& prepare);

// Calls add(name, bound ops) for each provider that accepts the signature.
template <class Op>
void for_each_provider(const typename Op::Signature& signature, const std::string& label, bool eager_too,
                       const std::function<void(const std::string&, const ops::BoundOps&)>& add_one) {
  const HardwareFacts& facts = machine();
  measured_ops().emplace(Op::kName);
  for (const auto& [provider, kernel] : ops::kernels<Op>().entries()) {
    const bool elsewhere = kernel.compose == nullptr && kernel.hardware != facts.hardware;
    if (elsewhere || (provider == ops::kEager && !eager_too) || kernel.accepts(signature, facts)) continue;
    ops::Binder binder({.fallback = provider}, facts);
    binder.template bind<Op>({signature});
    add_one(fmt::format("{}/{}/{}", Op::kName, provider, label), binder.finish());
  }
}

inline std::string label(DType dtype, const std::string& size) {
  return fmt::format("{}/{}", to_string(dtype), size);
}

}  // namespace temper::bench
