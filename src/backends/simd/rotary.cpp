#include "ops/rotary/rotary.h"
#include "backends/floats.h"
#include "backends/simd/grads.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/simd/rotary.cpp"
#include <hwy/foreach_target.h>

#include "backends/simd/rotation-inl.h"
#include "backends/simd/squares-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::backends {
namespace {
namespace HWY_NAMESPACE {
using namespace temper::backends::HWY_NAMESPACE;

// A head has `half` pairs, and behind them what is not rotated.
struct HeadAngles : Angles {
  HeadAngles(const Angles& angles, int64_t head_dim) : Angles(angles), dim(head_dim) {}
  int64_t dim;
};

// The angles of one token after the other, of one position or of three.
class TokenAngles {
 public:
  explicit TokenAngles(const ops::Rotary& op) : op_(op), dim_(op.head_dim()) {
    if (op.has_three_positions()) chosen_.resize(static_cast<size_t>(2 * op.cos.dim(1)));
  }

  HeadAngles at(int64_t token) {
    Angles angles(op_, token);  // of time
    if (op_.has_three_positions() && choose(token, angles)) {
      angles.cos = chosen_.data();
      angles.sin = chosen_.data() + angles.half;
    }
    return {angles, dim_};
  }

 private:
  // Puts together the rows of a token whose positions differ; false: they are equal.
  bool choose(int64_t token, const Angles& time) {
    const int64_t stride = op_.positions.stride(0), half = time.half;
    const int32_t* positions = op_.positions.data<int32_t>() + token;
    if (positions[0] == positions[stride] && positions[0] == positions[2 * stride]) return false;
    const ops::RotarySections& sections = op_.form.sections;
    for (const auto& [table, to] : {std::pair{&op_.cos, chosen_.data()}, {&op_.sin, chosen_.data() + half}}) {
      const auto row = [&, values = table->data<float>()](int which) {
        return values + positions[which * stride] * half;
      };
      std::copy_n(row(0), half, to);
      for (const int which : {1, 2})
        if (sections.interleaved)
          for (int64_t i = which; i < std::min<int64_t>(half, 3 * sections.pairs[which]); i += 3)
            to[i] = row(which)[i];
        else
          std::copy_n(row(which) + first_pair(which), sections.pairs[which], to + first_pair(which));
    }
    return true;
  }
  int64_t first_pair(int which) const {
    return op_.form.sections.pairs[0] + (which == 2 ? op_.form.sections.pairs[1] : 0);
  }

  const ops::Rotary& op_;
  int64_t dim_;
  std::vector<float> chosen_;  // cosines, then sines
};

HWY_INLINE Pair add(const Pair& a, Lanes b) { return {hn::Add(a.low, b), hn::Add(a.high, b)}; }

HWY_INLINE Pair multiply(const Pair& a, const Pair& b) {
  return {hn::Mul(a.low, b.low), hn::Mul(a.high, b.high)};
}

// What one head is normed with; weight null: no norm.
template <class T>
struct HeadNorm {
  const T* weight;
  float inv_rms, offset;
  float* dweight;  // backward; null: not computed

  template <class Count>
  HWY_INLINE Lanes factors(int64_t i, Count lanes) const {
    return hn::Add(load(weight + i, lanes), fill(offset));
  }
  template <class Pairs, class Count>
  HWY_INLINE Pair pair_factors(int64_t i, int64_t half, Count lanes) const {
    return add(Pairs::load(Pairs::at(weight, i), half, lanes), fill(offset));
  }
};

template <class Pairs, class T>
void forward_head(const T* x, const HeadNorm<T>& norm, const HeadAngles& at, T* y) {
  const Lanes scale = fill(norm.inv_rms);
  sweep(at.half, [&](int64_t i, auto lanes) HWY_ATTR {
    Pair n = Pairs::load(Pairs::at(x, i), at.half, lanes);
    if (norm.weight != nullptr)
      n = multiply(multiply(n, {scale, scale}), norm.template pair_factors<Pairs>(i, at.half, lanes));
    Pairs::store(rotate(n, load(at.cos + i, lanes), load(at.sin + i, lanes)), Pairs::at(y, i), at.half,
                 lanes);
  });
  const int64_t rotated = 2 * at.half;
  if (norm.weight == nullptr) {
    std::copy(x + rotated, x + at.dim, y + rotated);
    return;
  }
  sweep(at.dim - rotated, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes n = hn::Mul(load(x + rotated + i, lanes), scale);
    store(hn::Mul(n, norm.factors(rotated + i, lanes)), y + rotated + i, lanes);
  });
}

template <class Pairs>
void forward_tokens(const ops::Rotary& op, const ops::Rotary::Output& out, int64_t begin, int64_t end) {
  const int64_t dim = out.q.dim(2), normed = op.heads + op.kv_heads, width = op.qkv.dim(1);
  visit_wide(op.qkv.dtype(), [&]<class T>() HWY_ATTR {
    const auto heads = [&](const T* x, int64_t count, const Tensor& weight, float* inv_rms,
                           const HeadAngles& at, T* y) HWY_ATTR {
      const T* factors = weight.defined() ? weight.data<T>() : nullptr;
      for (int64_t head = 0; head < count; ++head, x += dim, y += dim) {
        if (factors != nullptr) inv_rms[head] = inverse_rms(square_sum(x, dim), dim, op.eps);
        const float scale = factors != nullptr ? inv_rms[head] : 1;
        forward_head<Pairs, T>(x, {factors, scale, op.form.offset, nullptr}, at, y);
      }
    };
    TokenAngles angles(op);
    for (int64_t token = begin; token < end; ++token) {
      const HeadAngles at = angles.at(token);
      const T* x = op.qkv.data<T>() + token * width;
      float* inv_rms = out.inv_rms.defined() ? out.inv_rms.data<float>() + token * normed : nullptr;
      heads(x, op.heads, op.q_weight, inv_rms, at, out.q.data<T>() + token * op.heads * dim);
      heads(x + op.heads * dim, op.kv_heads, op.k_weight, inv_rms == nullptr ? nullptr : inv_rms + op.heads,
            at, out.k.data<T>() + token * op.kv_heads * dim);
    }
  });
}

// The gradient of a normed head before the rotation, g: dx = inv_rms (g w - n · mean(g w n)) with
// n = x · inv_rms and w = offset + weight. Adds g n to dweight.
template <class Pairs, class T>
void backward_head(const T* x, const HeadNorm<T>& norm, const HeadAngles& at, const T* dy, T* dx) {
  const int64_t half = at.half, first = 2 * half, rest = at.dim - first;
  const Lanes scale = fill(norm.inv_rms);
  const auto rotated_back = [&](int64_t i, auto lanes) HWY_ATTR {
    return rotate(Pairs::load(Pairs::at(dy, i), half, lanes), load(at.cos + i, lanes),
                  hn::Neg(load(at.sin + i, lanes)));
  };
  if (norm.weight == nullptr) {
    std::copy_n(dy + first, rest, dx + first);
    return sweep(half, [&](int64_t i, auto lanes)
                           HWY_ATTR { Pairs::store(rotated_back(i, lanes), Pairs::at(dx, i), half, lanes); });
  }
  const auto normed = [&](int64_t i, auto lanes) HWY_ATTR {
    return multiply(Pairs::load(Pairs::at(x, i), half, lanes), {scale, scale});
  };
  Lanes products = none();
  sweep(half, [&](int64_t i, auto lanes) HWY_ATTR {
    const Pair gn = multiply(rotated_back(i, lanes), normed(i, lanes));
    const Pair weight = norm.template pair_factors<Pairs>(i, half, lanes);
    products = hn::MulAdd(gn.low, weight.low, hn::MulAdd(gn.high, weight.high, products));
    if (norm.dweight == nullptr) return;
    float* const dweight = Pairs::at(norm.dweight, i);
    const Pair sums = Pairs::load(dweight, half, lanes);
    Pairs::store({hn::Add(sums.low, gn.low), hn::Add(sums.high, gn.high)}, dweight, half, lanes);
  });
  sweep(rest, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes gn = hn::Mul(load(dy + first + i, lanes), hn::Mul(load(x + first + i, lanes), scale));
    products = hn::MulAdd(gn, norm.factors(first + i, lanes), products);
    if (norm.dweight == nullptr) return;
    float* const dweight = norm.dweight + first + i;
    store(hn::Add(load(dweight, lanes), gn), dweight, lanes);
  });
  const Lanes mean = fill(total(products) / static_cast<float>(at.dim));
  sweep(half, [&](int64_t i, auto lanes) HWY_ATTR {
    const Pair g = multiply(rotated_back(i, lanes), norm.template pair_factors<Pairs>(i, half, lanes)),
               n = normed(i, lanes);
    Pairs::store({hn::Mul(scale, hn::NegMulAdd(n.low, mean, g.low)),
                  hn::Mul(scale, hn::NegMulAdd(n.high, mean, g.high))},
                 Pairs::at(dx, i), half, lanes);
  });
  sweep(rest, [&](int64_t i, auto lanes) HWY_ATTR {
    const Lanes g = hn::Mul(load(dy + first + i, lanes), norm.factors(first + i, lanes)),
                n = hn::Mul(load(x + first + i, lanes), scale);
    store(hn::Mul(scale, hn::NegMulAdd(n, mean, g)), dx + first + i, lanes);
  });
}

template <class Pairs>
void backward_tokens(const ops::Rotary& op, const Tensor& inv_rms, const HeadGrads& grads, float* sums,
                     int64_t begin, int64_t end) {
  const int64_t dim = grads.dq.dim(2), normed = op.heads + op.kv_heads, width = op.qkv.dim(1);
  visit_wide(op.qkv.dtype(), [&]<class T>() HWY_ATTR {
    const T* q_weight = op.q_weight.defined() ? op.q_weight.data<T>() : nullptr;
    const T* k_weight = op.k_weight.defined() ? op.k_weight.data<T>() : nullptr;
    float* k_sums = sums == nullptr ? nullptr : sums + dim;
    TokenAngles angles(op);
    for (int64_t token = begin; token < end; ++token) {
      const HeadAngles at = angles.at(token);
      const T *x = op.qkv.data<T>() + token * width, *dq = grads.dq.data<T>() + token * grads.dq.stride(0),
              *dk = grads.dk.data<T>() + token * grads.dk.stride(0);
      T* dx = grads.dqkv.data<T>() + token * width;
      for (int64_t head = 0; head < normed; ++head, x += dim, dx += dim) {
        const bool is_query = head < op.heads;
        const float scale = inv_rms.defined() ? inv_rms.data<float>()[token * normed + head] : 1;
        const HeadNorm<T> norm{is_query ? q_weight : k_weight, scale, op.form.offset,
                               is_query ? sums : k_sums};
        backward_head<Pairs>(x, norm, at, is_query ? dq + head * dim : dk + (head - op.heads) * dim, dx);
      }
      std::copy_n(grads.dv.data<T>() + token * grads.dv.stride(0), op.kv_heads * dim, dx);
    }
  });
}

void forward(const ops::Rotary& op, const ops::Rotary::Output& out, int64_t begin, int64_t end) {
  op.form.interleaved ? forward_tokens<Interleaved>(op, out, begin, end)
                      : forward_tokens<HalfSplit>(op, out, begin, end);
}

// sums: [2, head_dim], of q_weight's gradient and k_weight's; null: not computed.
void backward(const ops::Rotary& op, const Tensor& inv_rms, const HeadGrads& grads, float* sums,
              int64_t begin, int64_t end) {
  op.form.interleaved ? backward_tokens<Interleaved>(op, inv_rms, grads, sums, begin, end)
                      : backward_tokens<HalfSplit>(op, inv_rms, grads, sums, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace temper::backends
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::backends {
namespace {

using ops::Rotary;
HWY_EXPORT(forward);
HWY_EXPORT(backward);

Rotary::Output run_forward(const Rotary& op) {
  const int64_t tokens = op.qkv.dim(0), width = op.qkv.dim(1), dim = op.head_dim();
  const DType dtype = op.qkv.dtype();
  Rotary::Output out{
      Tensor::empty({tokens, op.heads, dim}, dtype), Tensor::empty({tokens, op.kv_heads, dim}, dtype), {}};
  if (op.q_weight.defined()) out.inv_rms = Tensor::empty({tokens, op.heads + op.kv_heads}, DType::kF32);
  parallel_ranges(tokens, rows_per_task(width), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(op, out, begin, end);
  });
  return out;
}

Tensor run_backward(const Rotary& op, const Tensor& inv_rms, const Tensor& dq, const Tensor& dk,
                    const Tensor& dv, const GradTarget& q_weight, const GradTarget& k_weight) {
  const int64_t tokens = op.qkv.dim(0), width = op.qkv.dim(1), dim = dq.dim(2);
  const HeadGrads grads{dq, dk, dv, Tensor::empty(op.qkv.shape(), op.qkv.dtype())};
  RowSums sums(tokens, width, q_weight.wanted() || k_weight.wanted() ? 2 * dim : 0);
  parallel_ranges(tokens, sums.grain(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward)(op, inv_rms, grads, sums.piece(begin), begin, end);
  });
  sums.add_to(q_weight, 0);
  sums.add_to(k_weight, dim);
  return grads.dqkv;
}

}  // namespace

void register_simd_rotary() {
  ops::kernels<Rotary>().add("simd", {.accepts = refuse_float16,
                                      .forward = run_forward,
                                      .backward = run_backward,
                                      .traits = {.positions = 3}});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
