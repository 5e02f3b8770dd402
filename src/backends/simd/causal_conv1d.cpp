#include <cstring>
#include <vector>

#include "backends/floats.h"
#include "backends/simd/conv_rows.h"
#include "backends/simd/conv_tiles.h"
#include "backends/simd/row_sums.h"
#include "backends/simd/rows.h"
#include "base/threads/threads.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/slot_rows.h"

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
                       load(row.weights + j * row.stride + i, lanes), sum);
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

// The gradient of the convolution, float32, which is also added to those of the weights [width, channels], if
// any.
void slope(const ConvRow& row, const void* dy, float* dsum, float* dweights) {
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

// What a row of slopes, the last reader's first, gives the input that they read, and `more` where there is
// any.
void input_gradient(const ConvRow& slopes, const float* more, void* to, DType dtype) {
  visit_wide(dtype, [&]<class T>() HWY_ATTR {
    sweep(slopes.channels, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes sum = convolved<float>(slopes, i, lanes);
      store(more == nullptr ? sum : hn::Add(sum, load(more + i, lanes)), static_cast<T*>(to) + i, lanes);
    });
  });
}

// to += a · b; without b: to += a.
void add_product(const void* a, DType dtype, const float* b, float* to, int64_t size) {
  visit_wide(dtype, [&]<class T>() HWY_ATTR {
    sweep(size, [&](int64_t i, auto lanes) HWY_ATTR {
      const Lanes own = load(static_cast<const T*>(a) + i, lanes), sum = load(to + i, lanes);
      store(b == nullptr ? hn::Add(own, sum) : hn::MulAdd(own, load(b + i, lanes), sum), to + i, lanes);
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
HWY_EXPORT(slope);
HWY_EXPORT(input_gradient);
HWY_EXPORT(add_product);

std::vector<ops::Tiling> tilings(const CausalConv1d::Signature& s) {
  std::vector<ops::Tiling> all;
  for (const ConvTile& tile : kConvTiles)
    all.push_back(
        {fmt::format("{} tokens of {} channels", tile.tokens, std::min(tile.channels, s.channels)),
         32 * (conv_tile_floats(tile, s.channels, s.width) + std::min(tile.channels, s.channels) * s.width)});
  return all;
}

// [channels, width] → [width, channels], float32.
Tensor weights_of(const Tensor& weight) {
  return weight.transpose(0, 1).contiguous(MemoryTag::kWorkspace).to(DType::kF32, MemoryTag::kWorkspace);
}

Tensor final_windows(const CausalConv1d& op, const ConvColumns& all) {
  const int64_t kept = op.width() - 1, row_bytes = op.channels() * size_of(op.x.dtype());
  const Tensor windows = Tensor::empty({op.documents.count(), kept, op.channels()}, op.x.dtype());
  auto* to = static_cast<std::byte*>(windows.raw());
  for (int64_t d = 0; d < op.documents.count(); ++d)
    for (int64_t i = 0; i < kept; ++i, to += row_bytes) {
      const void* from = all.at(d, op.documents.length(d) - kept + i);
      from == nullptr ? std::memset(to, 0, static_cast<size_t>(row_bytes))
                      : std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
  return windows;
}

CausalConv1d::Output run_forward(const CausalConv1d& op, bool want_final) {
  const Tensor weights = weights_of(op.weight), y = Tensor::empty(op.x.shape(), op.x.dtype());
  const std::vector<int64_t> documents = documents_of_tokens(op.documents);
  parallel_ranges(op.tokens(), rows_per_task(op.channels() * op.width()), [&](int64_t begin, int64_t end) {
    for_conv_tiles(op, weights, documents, begin, end,
                   [&](const ConvColumns& columns, int64_t first, int64_t last) {
                     for (int64_t t = first; t < last; ++t)
                       HWY_DYNAMIC_DISPATCH(forward)(columns.row(t), columns.of(y, t));
                   });
  });
  return {y, want_final ? final_windows(op, {op, weights, documents, 0, op.channels()}) : Tensor()};
}

// Of each document, those that continue it.
using Followers = std::vector<std::vector<int64_t>>;
Followers followers_of(const ops::Documents& documents) {
  Followers followers(static_cast<size_t>(documents.count()));
  for (int64_t d = 0; d < documents.count(); ++d)
    if (const int64_t before = documents.continues(d); before >= 0)
      followers[static_cast<size_t>(before)].push_back(d);
  return followers;
}

// The backward pass of some channels. `scratch` has conv_tile_floats of them.
class TileBackward {
 public:
  struct Inputs {
    const CausalConv1d& op;
    const Tensor &dy, &dfinal;
    Followers followers;
  };

  TileBackward(const Inputs& in, const ConvColumns& columns, std::vector<float>& scratch)
      : in_(in),
        op_(in.op),
        columns_(columns),
        count_(columns.count()),
        kept_(op_.width() - 1),
        slope_(scratch.data()),
        more_(slope_ + count_),
        dweights_(more_ + count_),
        slopes_(dweights_ + op_.width() * count_) {}

  // Of tokens [first, last): dx, if defined; the gradients of weights are added to `sums` [width, channels],
  // if any.
  void run(int64_t first, int64_t last, const Tensor& dx, float* sums) {
    const int64_t document = columns_.document_of(last - 1), end = op_.documents.start(document + 1);
    std::fill_n(dweights_, op_.width() * count_, 0.f);
    for (int64_t t = first; t < (dx.defined() ? std::min(last + kept_, end) : last); ++t)
      HWY_DYNAMIC_DISPATCH(slope)
    (columns_.row(t), columns_.of(in_.dy, t), slopes_ + (t - first) * count_,
     sums != nullptr && t < last ? dweights_ : nullptr);
    if (dx.defined())
      for (int64_t t = first; t < last; ++t) give_input(t, first, dx);
    if (sums != nullptr)
      for (int64_t j = 0; j < op_.width(); ++j)
        add(dweights_ + j * count_, nullptr, sums + j * op_.channels());
  }

  // That of an input before a document's first token, at index -1 and before.
  const float* of_initial(int64_t document, int64_t index) {
    std::fill_n(more_, count_, 0.f);
    add_tokens(document, index);
    add_end(document, index);
    return more_;
  }

 private:
  void add(const void* a, const float* b, float* to, DType dtype = DType::kF32) const {
    HWY_DYNAMIC_DISPATCH(add_product)(a, dtype, b, to, count_);
  }

  void give_input(int64_t t, int64_t first, const Tensor& dx) {
    const int64_t document = columns_.document_of(t), index = t - op_.documents.start(document),
                  length = op_.documents.length(document);
    ConvRow readers = columns_.row(DType::kF32);
    for (int64_t j = 0; j <= kept_; ++j)
      if (index + kept_ - j < length) readers.inputs[j] = slopes_ + (t + kept_ - j - first) * count_;
    const bool at_end = index >= length - kept_ && reaches_on(document);
    if (at_end) {
      std::fill_n(more_, count_, 0.f);
      add_end(document, index);
    }
    HWY_DYNAMIC_DISPATCH(input_gradient)
    (readers, at_end ? more_ : nullptr, columns_.of(dx, t), dx.dtype());
  }

  const std::vector<int64_t>& followers(int64_t document) const {
    return in_.followers[static_cast<size_t>(document)];
  }
  bool reaches_on(int64_t document) const { return in_.dfinal.defined() || !followers(document).empty(); }

  // To `more_`, what arrives at the input of a document at `index` (which may be before its first) from its
  // tokens…
  void add_tokens(int64_t document, int64_t index) {
    for (int64_t j = 0; j <= kept_; ++j) {
      const int64_t token = index + kept_ - j;
      if (token < 0 || token >= op_.documents.length(document)) continue;
      const int64_t t = op_.documents.start(document) + token;
      HWY_DYNAMIC_DISPATCH(slope)(columns_.row(t), columns_.of(in_.dy, t), slope_, nullptr);
      add(slope_, columns_.weights(j), more_);
    }
  }
  // … from its final window, and from those that continue it.
  void add_end(int64_t document, int64_t index) {
    const int64_t place = index - op_.documents.length(document) + kept_;
    if (place < 0) return;
    if (in_.dfinal.defined()) {
      const Tensor rows = in_.dfinal.reshape({-1, op_.channels()});
      add(columns_.of(rows, document * kept_ + place), nullptr, more_, rows.dtype());
    }
    for (const int64_t follower : followers(document)) {
      add_tokens(follower, index - op_.documents.length(document));
      add_end(follower, index - op_.documents.length(document));
    }
  }

  const Inputs& in_;
  const CausalConv1d& op_;
  const ConvColumns& columns_;
  int64_t count_, kept_;
  float *slope_, *more_, *dweights_, *slopes_;
};

Tensor initial_grads(const TileBackward::Inputs& in, const ConvColumns& all) {
  const CausalConv1d& op = in.op;
  const int64_t kept = op.width() - 1;
  const Tensor grads = Tensor::zeros({op.documents.count(), kept, op.channels()}, op.x.dtype());
  std::vector<float> scratch(
      static_cast<size_t>(conv_tile_floats({0, op.channels()}, op.channels(), op.width())));
  TileBackward backward(in, all, scratch);
  const Tensor rows = grads.reshape({-1, op.channels()});
  for (int64_t d = 0; d < op.documents.count(); ++d) {
    if (op.documents.continues(d) >= 0) continue;
    for (int64_t i = 0; i < kept; ++i) HWY_DYNAMIC_DISPATCH(input_gradient)
    (all.row(DType::kF32), backward.of_initial(d, i - kept), all.of(rows, d * kept + i), rows.dtype());
  }
  return grads;
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

// Elements that stand for a token where rows are cut into pieces: each piece has at least a tile of them.
int64_t elements_of_token(const CausalConv1d& op) {
  return std::min(op.channels() * op.width(), rows_per_task(kConvTiles[op.tiling].tokens));
}

CausalConv1d::Grads run_backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                                 CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const int64_t channels = op.channels(), width = op.width();
  const Tensor weights = weights_of(op.weight);
  const std::vector<int64_t> documents = documents_of_tokens(op.documents);
  const TileBackward::Inputs in{op, dy, dfinal, followers_of(op.documents)};
  const CausalConv1d::Grads out{
      wanted.x ? Tensor::empty(op.x.shape(), op.x.dtype()) : Tensor(),
      wanted.initial ? initial_grads(in, {op, weights, documents, 0, channels}) : Tensor()};
  const RowSums sums(op.tokens(), elements_of_token(op), weight.wanted() ? channels * width : 0);
  parallel_ranges(op.tokens(), sums.grain(), [&](int64_t begin, int64_t end) {
    float* const own = sums.piece(begin);
    std::vector<float> scratch(static_cast<size_t>(conv_tile_floats(kConvTiles[op.tiling], channels, width)));
    for_conv_tiles(op, weights, documents, begin, end,
                   [&](const ConvColumns& columns, int64_t first, int64_t last) {
                     TileBackward(in, columns, scratch)
                         .run(first, last, out.x, own == nullptr ? nullptr : own + columns.first());
                   });
  });
  give_weights(sums, width, channels, weight);
  return out;
}

CausalConv1d::Grads outline_backward(const CausalConv1d& op, const Tensor& dy, const Tensor& dfinal,
                                     CausalConv1d::Wanted wanted, const GradTarget& weight) {
  const int64_t size = op.channels() * op.width(),
                sums = weight.wanted() ? RowSums::floats(op.tokens(), elements_of_token(op), size) : 0;
  const Tensor workspace = Tensor::empty({size + sums}, DType::kF32, MemoryTag::kWorkspace, op.x.device());
  return ops::outline<CausalConv1d>().backward(op, dy, dfinal, wanted, weight);
}

Tensor run_update(const ops::CausalConv1dUpdate& op) {
  CausalConv1d whole;  // each sequence is a document of one token
  std::vector<int32_t> starts;
  for (int64_t s = 0; s <= op.x.dim(0); ++s) starts.push_back(static_cast<int32_t>(s));
  whole.x = op.x;
  whole.weight = op.weight;
  whole.documents.starts = Tensor::from(starts);
  const ops::SlotRows windows(op.window, op.slots);
  whole.initial = windows.rows();
  const CausalConv1d::Output out = run_forward(whole, true);
  windows.rows().copy_from(out.final_window);
  windows.store();
  return out.y;
}

}  // namespace

void register_simd_causal_conv1d() {
  ops::kernels<CausalConv1d>().add("simd", {.accepts = refuse_float16,
                                            .forward = run_forward,
                                            .backward = run_backward,
                                            .batch_invariant = true,
                                            .tilings = tilings,
                                            .outline = {.backward = outline_backward}});
  ops::kernels<ops::CausalConv1dUpdate>().add(
      "simd", {.accepts = refuse_float16, .forward = run_update, .batch_invariant = true});
}

}  // namespace temper::backends
#endif  // HWY_ONCE
