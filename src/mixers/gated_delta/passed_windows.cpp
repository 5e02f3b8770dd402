#include "mixers/gated_delta/passed_states.h"

namespace temper::mixers {
namespace {

using layers::ContextPass;
using layers::ContextSpan;
using layers::ContextSpans;

// f(where the rows of the window begin, last tokens of which span) for a span's first document.
template <class F>
void for_each_tail(const ContextSpans& spans, size_t span, int64_t rows, const F& f) {
  int64_t end = rows;
  for (const ContextSpans::Tail& tail : spans.before(span, rows)) {
    end -= tail.count;
    f(end, tail);
  }
}

// Of all ranks: [rows of all spans, rows, channels], in which the last tokens of a span come last.
Tensor tails_of_ranks(const Tensor& x, int64_t rows, const ContextPass& context) {
  const ContextSpans& spans = *context.spans;
  const Tensor own =
      Tensor::zeros({spans.most, rows, x.dim(1)}, x.dtype(), MemoryTag::kActivations, x.device());
  for (const size_t s : spans.own) {
    const ContextSpan& span = spans.all[s];
    const int64_t count = std::min(rows, span.count);
    own.narrow(0, span.place, 1)
        .reshape({rows, x.dim(1)})
        .narrow(0, rows - count, count)
        .copy_from(x.narrow(0, span.first + span.count - count, count));
  }
  return context.all.of_all_ranks("tokens before those of context ranks", own);
}

Tensor windows_of(const Tensor& x, int64_t rows, const ContextPass& context) {
  const ContextSpans& spans = *context.spans;
  const Tensor all = Tensor::zeros({spans.starts.numel() - 1, rows, x.dim(1)}, x.dtype(),
                                   MemoryTag::kActivations, x.device()),
               tails = tails_of_ranks(x, rows, context);
  for (const size_t s : spans.own)
    for_each_tail(spans, s, rows, [&](int64_t first, const ContextSpans::Tail& tail) {
      all.narrow(0, spans.all[s].first_piece, 1)
          .narrow(1, first, tail.count)
          .copy_from(tails.narrow(0, spans.row(tail.span), 1).narrow(1, rows - tail.count, tail.count));
    });
  return all;
}

// The gradients of all ranks' windows to the tokens that they are copies of: added to dx.
void return_windows(const Tensor& dwindows, const Tensor& dx, const ContextPass& context) {
  const ContextSpans& spans = *context.spans;
  const int64_t rows = dwindows.dim(1), channels = dwindows.dim(2);
  const Tensor own =
      Tensor::zeros({spans.most, rows, channels}, dx.dtype(), MemoryTag::kActivations, dx.device());
  for (const size_t s : spans.own)
    own.narrow(0, spans.all[s].place, 1).copy_from(dwindows.narrow(0, spans.all[s].first_piece, 1));
  const Tensor all = context.all.of_all_ranks("gradients of tokens before those of context ranks", own);
  for (size_t s = 0; s < spans.all.size(); ++s)
    for_each_tail(spans, s, rows, [&](int64_t first, const ContextSpans::Tail& tail) {
      const ContextSpan& span = spans.all[tail.span];
      if (span.rank != context.all.place()) return;
      add_in_place(
          dx.narrow(0, span.first + span.count - tail.count, tail.count),
          all.narrow(0, spans.row(s), 1).narrow(1, first, tail.count).reshape({tail.count, channels}));
    });
}

}  // namespace

WindowedTokens entering_windows(Tape& tape, const Var& x, int64_t width, const ContextPass& context) {
  if (width == 1 || !context.spans->any_enters()) return {x, {}};
  const std::vector<Var> both = tape.record(
      {x.value, windows_of(x.value, width - 1, context)}, {&x},
      [this_pass = context, slot = x.slot, shape = x.shape(), dtype = x.dtype(),
       device = x.value.device()](const std::vector<Tensor>& grads) {
        Tensor dx = grads[0].defined() ? grads[0].contiguous()
                                       : Tensor::zeros(shape, dtype, MemoryTag::kActivations, device);
        return_windows(grads[1], dx, this_pass);
        slot->add(dx);
      });
  return {both[0], both[1]};
}

}  // namespace temper::mixers
