#include <cstring>
#include <vector>

#include "backends/floats.h"
#include "backends/simd/conv_rows.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "backends/simd/simd.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/causal_conv1d.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

template <class T, class Part>
HWY_INLINE Lanes convolved(const ConvRow& row, int64_t i, Part lanes) {
  Lanes sum = none();
  for (int64_t j = 0; j < row.width; ++j)
    if (row.inputs[j] != nullptr)
      sum = hn::MulAdd(load(static_cast<const T*>(row.inputs[j]) + i, lanes),
                       load(row.weights + j * row.channels + i, lanes), sum);
  return sum;
}

// y = silu of the convolution.
void forward(const ConvRow& row, void* y) {
  visit_wide(row.dtype, [&]<class T>() HWY_ATTR {
    sweep(row.channels, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes sum = convolved<T>(row, i, lanes);
      store(hn::Mul(sum, logistic(sum)), static_cast<T*>(y) + i, lanes);
    });
  });
}

// The gradient of the convolution, float32, which is also added to those of the weights, if any.
void backward(const ConvRow& row, const void* dy, float* dsum, float* dweights) {
  visit_wide(row.dtype, [&]<class T>() HWY_ATTR {
    sweep(row.channels, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes sum = convolved<T>(row, i, lanes), s = logistic(sum);
      const Lanes slope = hn::MulAdd(hn::Mul(sum, s), hn::Sub(fill(1), s), s);
      const Lanes grad = hn::Mul(load(static_cast<const T*>(dy) + i, lanes), slope);
      store(grad, dsum + i, lanes);
      if (dweights == nullptr) return;
      for (int64_t j = 0; j < row.width; ++j) {
        if (row.inputs[j] == nullptr) continue;
        float* const to = dweights + j * row.channels + i;
        store(hn::MulAdd(load(static_cast<const T*>(row.inputs[j]) + i, lanes), grad, load(to, lanes)), to,
              lanes);
      }
    });
  });
}

// to += a · b; without b: to += a.
void add_product(const float* a, const float* b, float* to, int64_t size) {
  sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes own = load(a + i, lanes), sum = load(to + i, lanes);
    store(b == nullptr ? hn::Add(own, sum) : hn::MulAdd(own, load(b + i, lanes), sum), to + i, lanes);
  });
}

void convert_row(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t size) {
  visit_wide(from_dtype, [&]<class From>() HWY_ATTR {
    visit_wide(to_dtype, [&]<class To>() HWY_ATTR {
      convert(static_cast<const From*>(from), static_cast<To*>(to), size);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::CausalConv1d;
HWY_EXPORT(forward);
HWY_EXPORT(backward);
HWY_EXPORT(add_product);
HWY_EXPORT(convert_row);

// [channels, width] → [width, channels], float32.
Tensor weights_of(const Tensor& weight) {
  return weight.transpose(0, 1).contiguous(MemoryTag::kWorkspace).to(DType::kF32, MemoryTag::kWorkspace);
}

const void* row_of(const Tensor& rows, int64_t row) {
  return static_cast<const std::byte*>(rows.raw()) + row * rows.stride(0) * size_of(rows.dtype());
}

// Where the inputs of a document are: from -(width - 1), in what is before it, to its length.
class Inputs {
 public:
  explicit Inputs(const CausalConv1d& op) : op_(op) {
    for (int64_t d = 0; d < op.documents.count(); ++d) {
      const auto length = static_cast<size_t>(op.documents.length(d));
      documents_.insert(documents_.end(), length, d);
    }
  }
  int64_t document_of(int64_t token) const { return documents_[static_cast<size_t>(token)]; }

  const void* at(int64_t document, int64_t index) const {
    if (index >= 0) return row_of(op_.x, op_.documents.start(document) + index);
    const int64_t before = op_.documents.continues(document);
    if (before >= 0) return at(before, op_.documents.length(before) + index);
    const int64_t kept = op_.width() - 1;
    if (!op_.initial.defined() || index < -kept) return nullptr;
    return row_of(op_.initial.reshape({op_.documents.count() * kept, op_.channels()}),
                  document * kept + kept + index);
  }
  ConvRow row(int64_t token, const Tensor& weights) const {
    ConvRow row{{}, op_.width(), op_.channels(), weights.data<float>(), op_.x.dtype()};
    const int64_t document = document_of(token), index = token - op_.documents.start(document);
    for (int64_t j = 0; j < row.width; ++j) row.inputs[j] = at(document, index - (row.width - 1) + j);
    return row;
  }

 private:
  const CausalConv1d& op_;
  std::vector<int64_t> documents_;  // of each token
};

Tensor final_windows(const CausalConv1d& op, const Inputs& inputs) {
  const int64_t kept = op.width() - 1, row_bytes = op.channels() * size_of(op.x.dtype());
  const Tensor windows = Tensor::empty({op.documents.count(), kept, op.channels()}, op.x.dtype());
  auto* to = static_cast<std::byte*>(windows.raw());
  for (int64_t d = 0; d < op.documents.count(); ++d)
    for (int64_t i = 0; i < kept; ++i, to += row_bytes) {
      const void* from = inputs.at(d, op.documents.length(d) - kept + i);
      from == nullptr ? std::memset(to, 0, static_cast<size_t>(row_bytes))
                      : std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
  return windows;
}

CausalConv1d::Output run_forward(const CausalConv1d& op, bool want_final) {
  const Tensor weights = weights_of(op.weight), y = Tensor::empty(op.x.shape(), op.x.dtype());
  const Inputs inputs(op);
  parallel_ranges(op.tokens(), rows_per_task(op.channels() * op.width()), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      HWY_DYNAMIC_DISPATCH(forward)(inputs.row(t, weights), const_cast<void*>(row_of(y, t)));
  });
  return {y, want_final ? final_windows(op, inputs) : Tensor()};
}

// Gradients of inputs, of each document's own and of what was before it.
class InputGrads {
 public:
  InputGrads(const CausalConv1d& op, const Tensor& weights, const Tensor& dsum, const Tensor& dfinal)
      : op_(op), weights_(weights), dsum_(dsum), dfinal_(dfinal) {
    followers_.resize(static_cast<size_t>(op.documents.count()));
    for (int64_t d = 0; d < op.documents.count(); ++d)
      if (const int64_t before = op.documents.continues(d); before >= 0)
        followers_[static_cast<size_t>(before)].push_back(d);
  }

  // Of the input at `index` of a document that continues none, or of one's own: added to grad [channels].
  void add(int64_t document, int64_t index, float* grad) const {
    const int64_t kept = op_.width() - 1, length = op_.documents.length(document);
    for (int64_t j = 0; j <= kept; ++j) {
      const int64_t token = index + kept - j;
      if (token < 0 || token >= length) continue;
      add_row(dsum_.data<float>() + (op_.documents.start(document) + token) * op_.channels(),
              weights_.data<float>() + j * op_.channels(), grad);
    }
    const int64_t place = index - length + kept;  // in the final window
    if (place < 0) return;
    if (dfinal_.defined()) add_window(document * kept + place, grad);
    for (const int64_t follower : followers_[static_cast<size_t>(document)])
      add(follower, index - length, grad);
  }

 private:
  void add_row(const float* a, const float* b, float* to) const {
    HWY_DYNAMIC_DISPATCH(add_product)(a, b, to, op_.channels());
  }
  void add_window(int64_t row, float* grad) const {
    std::vector<float> wide(static_cast<size_t>(op_.channels()));
    const Tensor rows = dfinal_.reshape({-1, op_.channels()});
    HWY_DYNAMIC_DISPATCH(convert_row)
    (row_of(rows, row), rows.dtype(), wide.data(), DType::kF32, op_.channels());
    add_row(wide.data(), nullptr, grad);
  }

  const CausalConv1d& op_;
  const Tensor &weights_, &dsum_, &dfinal_;
  std::vector<std::vector<int64_t>> followers_;
};

Tensor initial_grads(const CausalConv1d& op, const InputGrads& grads) {
  const int64_t kept = op.width() - 1;
  const Tensor all = Tensor::empty({op.documents.count(), kept, op.channels()}, op.x.dtype());
  std::vector<float> grad(static_cast<size_t>(op.channels()));
  const Tensor rows = all.reshape({-1, op.channels()});
  for (int64_t d = 0; d < op.documents.count(); ++d)
    for (int64_t i = 0; i < kept; ++i) {
      std::fill(grad.begin(), grad.end(), 0.f);
      if (op.documents.continues(d) < 0) grads.add(d, i - kept, grad.data());
      HWY_DYNAMIC_DISPATCH(convert_row)
      (grad.data(), DType::kF32, const_cast<void*>(row_of(rows, d * kept + i)), all.dtype(), op.channels());
    }
  return all;
}

// Sums [width, channels] over all pieces, to the weight [channels, width].
void give_weights(const RowSums& sums, int64_t width, int64_t channels, const GradTarget& weight) {
  if (!weight.wanted()) return;
  const Tensor by_column = Tensor::empty({width, channels}, DType::kF32, MemoryTag::kWorkspace);
  sums.add_to({by_column.reshape({width * channels}), false}, 0);
  const Tensor turned = by_column.transpose(0, 1).contiguous(MemoryTag::kWorkspace);
  const Tensor to = weight.buffer.reshape({channels, width});
  weight.accumulate ? add_in_place(to, turned) : to.copy_from(turned);
}

CausalConv1d::Grads run_backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                                 CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const int64_t channels = op.channels(), width = op.width();
  const Tensor weights = weights_of(op.weight),
               dsum = Tensor::empty(op.x.shape(), DType::kF32, MemoryTag::kWorkspace);
  const Inputs inputs(op);
  const RowSums sums(op.tokens(), channels * width, weight.wanted() ? channels * width : 0);
  parallel_ranges(op.tokens(), sums.grain(), [&](int64_t begin, int64_t end) {
    float* const own = sums.piece(begin);
    for (int64_t t = begin; t < end; ++t) HWY_DYNAMIC_DISPATCH(backward)
    (inputs.row(t, weights), row_of(dy, t), dsum.data<float>() + t * channels, own);
  });
  give_weights(sums, width, channels, weight);
  const InputGrads grads(op, weights, dsum, dfinal);
  CausalConv1d::Grads out;
  if (wanted.x) {
    out.x = Tensor::empty(op.x.shape(), op.x.dtype());
    parallel_ranges(op.tokens(), rows_per_task(channels * width), [&](int64_t begin, int64_t end) {
      std::vector<float> grad(static_cast<size_t>(channels));
      for (int64_t t = begin; t < end; ++t) {
        std::fill(grad.begin(), grad.end(), 0.f);
        const int64_t document = inputs.document_of(t);
        grads.add(document, t - op.documents.start(document), grad.data());
        HWY_DYNAMIC_DISPATCH(convert_row)
        (grad.data(), DType::kF32, const_cast<void*>(row_of(out.x, t)), out.x.dtype(), channels);
      }
    });
  }
  if (wanted.initial) out.initial = initial_grads(op, grads);
  return out;
}

CausalConv1d::Grads outline_backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                                     CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const int64_t size = op.channels() * op.width(),
                sums = weight.wanted() ? RowSums::floats(op.tokens(), size, size) : 0;
  const Tensor workspace = Tensor::empty({op.tokens() * op.channels() + size + sums}, DType::kF32,
                                         MemoryTag::kWorkspace, op.x.device());
  return ops::outline<CausalConv1d>().backward(op, dy, dfinal, wanted, weight);
}

Tensor run_update(const ops::CausalConv1dUpdate& op) {
  CausalConv1d whole;  // each sequence is a document of one token
  std::vector<int32_t> starts;
  for (int64_t s = 0; s <= op.x.dim(0); ++s) starts.push_back(static_cast<int32_t>(s));
  whole.x = op.x;
  whole.weight = op.weight;
  whole.documents.starts = Tensor::from(starts);
  whole.initial = op.window;
  const CausalConv1d::Output out = run_forward(whole, true);
  op.window.copy_from(out.final_window);
  return out.y;
}

}  // namespace

ops::Kernel<CausalConv1d> causal_conv1d_kernel() {
  return {.accepts = refuse_float16,
          .forward = run_forward,
          .backward = run_backward,
          .batch_invariant = true,
          .outline = {.backward = outline_backward}};
}
ops::Kernel<ops::CausalConv1dUpdate> causal_conv1d_update_kernel() {
  return {.accepts = refuse_float16, .forward = run_update, .batch_invariant = true};
}

}  // namespace temper::backends
#endif  // HWY_ONCE
