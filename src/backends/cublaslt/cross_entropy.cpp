#include <algorithm>

#include "backends/cublaslt/softmax_rows.h"
#include "backends/gpu_gemm/library.h"
#include "backends/gpu_gemm/product.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace temper::backends {
namespace {

using ops::CrossEntropy;

// Logits held at once: enough rows to use the head's weights thousands of times.
constexpr int64_t kLogitsBytes = int64_t{5} << 28;
constexpr int64_t kRowsAlign = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tokens that have a target. Of the others, only the first are multiplied: they pad the rows to a multiple of
// kRowsAlign, so that there are few shapes of matrix multiplications, and those are fast.
struct Kept {
  std::vector<int32_t> places, targets;

  explicit Kept(const Tensor& all) {
    const auto values = all.values<int32_t>();
    const auto tokens = static_cast<int64_t>(values.size());
    const int64_t ignored = std::count(values.begin(), values.end(), CrossEntropy::kIgnore);
    const int64_t rows = ceil_div(tokens - ignored, kRowsAlign) * kRowsAlign;
    int64_t filling = std::min(rows, tokens) - (tokens - ignored);
    for (size_t t = 0; t < values.size(); ++t) {
      if (values[t] == CrossEntropy::kIgnore && --filling < 0) continue;
      places.push_back(static_cast<int32_t>(t));
      targets.push_back(values[t]);
    }
  }
  int64_t count() const { return static_cast<int64_t>(places.size()); }
};

// Chunks of equal size, so that all but the last have one shape.
int64_t rows_per_chunk(int64_t count, int64_t vocab, DType dtype) {
  const int64_t most = std::max(kRowsAlign, kLogitsBytes / (vocab * size_of(dtype)));
  return ceil_div(ceil_div(count, ceil_div(count, most)), kRowsAlign) * kRowsAlign;
}

struct Chunk {
  int64_t first, count;
};

class Job {
 public:
  Job(const CrossEntropy& op, bool want_dhidden, const GradTarget& weight)
      : op_(op),
        weight_(weight),
        count_(Kept(op.targets).count()),
        device_(op.hidden.device()),
        all_(count_ == op.hidden.dim(0)) {
    const int64_t tokens = op.hidden.dim(0);
    out_.loss = Tensor::empty({1}, DType::kF32, MemoryTag::kActivations, device_);
    out_.nll = Tensor::zeros({tokens}, DType::kF32, MemoryTag::kActivations, device_);
    if (op.factors.z_loss != 0) {
      out_.z = Tensor::empty({1}, DType::kF32, MemoryTag::kActivations, device_);
      z_ = Tensor::zeros({tokens}, DType::kF32, MemoryTag::kWorkspace, device_);
    }
    if (want_dhidden) {
      out_.dhidden = Tensor::empty(op.hidden.shape(), op.hidden.dtype(), MemoryTag::kActivations, device_);
      if (!all_) out_.dhidden.fill_zero();
    }
    const Tensor targets = op.targets;
    take_for_granted("kept " + name_of(targets),
                     [targets, count = count_] { return Kept(targets).count() == count; });
    targets_ = list("kept", &Kept::targets);
    if (!all_) places_ = list("places", &Kept::places);
    scale_ = from_host(op.factors.scale, device_);
    if (op.factors.tokens.defined()) factors_ = from_host(op.factors.tokens, device_);
  }

  CrossEntropy::Output run() {
    const int64_t vocab = op_.weight.dim(0);
    if (count_ > 0) {
      const int64_t rows = rows_per_chunk(count_, vocab, op_.hidden.dtype());
      const Tensor logits =
          Tensor::empty({std::min(rows, count_), vocab}, op_.hidden.dtype(), MemoryTag::kWorkspace, device_);
      for (int64_t first = 0; first < count_; first += rows)
        run_chunk({first, std::min(rows, count_ - first)}, logits);
    } else if (weight_.wanted() && !weight_.accumulate) {
      weight_.buffer.fill_zero();
    }
    if (!only_counts(device_)) sum_losses({out_.nll, z_, factors_, scale_, out_.loss, out_.z});
    return out_;
  }

 private:
  // Of the tokens kept, as the targets are when the work runs.
  Tensor list(const char* what, std::vector<int32_t> Kept::*member) const {
    return from_host(fmt::format("{} {}", what, name_of(op_.targets)), {count_}, DType::kI32, device_,
                     [targets = op_.targets, member](std::byte* to) {
                       const Kept kept(targets);
                       const std::vector<int32_t>& values = kept.*member;
                       std::copy(values.begin(), values.end(), reinterpret_cast<int32_t*>(to));
                     });
  }

  void run_chunk(const Chunk& chunk, const Tensor& all_logits) {
    const Tensor hidden = gathered(chunk), logits = all_logits.narrow(0, 0, chunk.count);
    multiply({.a = hidden, .b = op_.weight, .d = logits, .transpose_b = true});
    take_softmax({.logits = logits,
                  .targets = targets_.narrow(0, chunk.first, chunk.count),
                  .places = all_ ? Tensor() : places_.narrow(0, chunk.first, chunk.count),
                  .first = chunk.first,
                  .nll = out_.nll,
                  .z = z_,
                  .token_factors = factors_,
                  .scale = scale_,
                  .z_loss = op_.factors.z_loss,
                  .differentiate = out_.dhidden.defined() || weight_.wanted()});
    if (out_.dhidden.defined()) store_dhidden(chunk, logits);
    if (weight_.wanted())
      multiply({.a = logits,
                .b = hidden,
                .d = weight_.buffer,
                .transpose_a = true,
                .accumulate = weight_.accumulate || chunk.first > 0});
  }

  void take_softmax(const SoftmaxRows& rows) const {
    const auto& [group, first] = op_.ranks;
    if (group == nullptr) {
      if (!only_counts(device_)) softmax_rows(rows);
      return;
    }
    const Tensor measured =
        Tensor::empty({rows.logits.dim(0), 3}, DType::kF32, MemoryTag::kWorkspace, device_);
    if (!only_counts(device_)) measure_rows(rows, first, measured);
    const Tensor all = group->all_gather("softmax of the vocabulary", measured);
    if (!only_counts(device_)) finish_rows(rows, first, all);
  }

  Tensor gathered(const Chunk& chunk) const {
    if (all_) return op_.hidden.narrow(0, chunk.first, chunk.count);
    const Tensor rows =
        Tensor::empty({chunk.count, op_.hidden.dim(1)}, op_.hidden.dtype(), MemoryTag::kWorkspace, device_);
    if (!only_counts(device_)) gather_rows(rows, op_.hidden, places_.narrow(0, chunk.first, chunk.count));
    return rows;
  }

  void store_dhidden(const Chunk& chunk, const Tensor& dlogits) const {
    if (all_) {
      multiply({.a = dlogits, .b = op_.weight, .d = out_.dhidden.narrow(0, chunk.first, chunk.count)});
      return;
    }
    const Tensor rows =
        Tensor::empty({chunk.count, op_.hidden.dim(1)}, op_.hidden.dtype(), MemoryTag::kWorkspace, device_);
    multiply({.a = dlogits, .b = op_.weight, .d = rows});
    if (!only_counts(device_)) scatter_rows(out_.dhidden, rows, places_.narrow(0, chunk.first, chunk.count));
  }

  const CrossEntropy& op_;
  const GradTarget& weight_;
  const int64_t count_;  // of the tokens kept
  const Device device_;
  const bool all_;  // every token has a target
  Tensor targets_, places_, factors_, scale_, z_;
  CrossEntropy::Output out_;
};

CrossEntropy::Output forward(const CrossEntropy& op, bool want_dhidden, const GradTarget& weight) {
  return Job(op, want_dhidden, weight).run();
}

}  // namespace

void register_cublaslt_cross_entropy() {
  ops::kernels<CrossEntropy>().add("cublaslt", {.hardware = hardware::kGpu,
                                                .accepts = ops::accept_all<CrossEntropy::Signature>,
                                                .forward = forward,
                                                .missing = refuse_without_cublaslt,
                                                .repeats = true,
                                                .outline = {forward}});
}

}  // namespace temper::backends
