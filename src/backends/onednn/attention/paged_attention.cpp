// Each sequence is a document whose keys and values lie in pages: attention's tasks read them there.
#include <cstring>

#include "backends/floats.h"
#include "backends/onednn/attention/attention.h"
#include "ops/attention/paged_attention.h"

namespace temper::backends {
namespace {

using ops::PagedAttention;

// Rows of heads of the new tokens to their places.
void write(const Tensor& pages, const std::vector<ops::PageRun>& runs, const Tensor& rows) {
  const int64_t bytes = pages.dim(2) * pages.dim(3) * size_of(pages.dtype()),
                step = rows.stride(0) * size_of(rows.dtype());
  for (const ops::PageRun& run : runs)
    for (int64_t i = 0; i < run.tokens; ++i)
      std::memcpy(static_cast<std::byte*>(pages.raw()) + (run.place + i) * bytes,
                  static_cast<const std::byte*>(rows.raw()) + (run.row + i) * step,
                  static_cast<size_t>(bytes));
}

// Keys and values where they lie, and which of them each sequence has.
ops::Attention attention_of(const PagedAttention& op) {
  const Shape places{op.keys.dim(0) * op.keys.dim(1), op.keys.dim(2), op.keys.dim(3)};
  ops::Attention all;
  all.q = op.q;
  all.k = op.keys.reshape(places);
  all.v = op.values.reshape(places);
  all.scale = op.scale;
  all.window = op.window;
  all.sinks = op.sinks;
  return all;
}

std::vector<Document> documents_of(const PagedAttention& op) {
  const ops::PagedSequences& sequences = op.sequences;
  std::vector<Document> documents;
  for (int64_t s = 0; s < sequences.count(); ++s)
    documents.push_back({sequences.start(s), sequences.added(s), 0, sequences.length(s),
                         sequences.pages_of(s), op.keys.dim(1)});
  return documents;
}

Tensor run(const PagedAttention& op, bool few) {
  const std::vector<ops::PageRun> runs = ops::runs_to_write(op.sequences, op.keys.dim(1));
  write(op.keys, runs, op.k);
  write(op.values, runs, op.v);
  return attend(attention_of(op), documents_of(op), false, few).y;
}

Tensor outline(const PagedAttention& op, bool few) {
  Tensor y = ops::outline<PagedAttention>().forward(op);
  hold_tasks(attention_of(op), documents_of(op), few);
  return y;
}

Tensor forward(const PagedAttention& op) { return run(op, true); }
Tensor forward_alike(const PagedAttention& op) { return run(op, false); }
Tensor outline_forward(const PagedAttention& op) { return outline(op, true); }
Tensor outline_alike(const PagedAttention& op) { return outline(op, false); }

}  // namespace

void register_onednn_paged_attention() {
  ops::kernels<PagedAttention>().add(
      "onednn", {.accepts = refuse_float16, .forward = forward, .outline = {outline_forward}});
  ops::kernels<PagedAttention>().add("onednn_invariant", {.accepts = refuse_but_float32,
                                                          .forward = forward_alike,
                                                          .batch_invariant = sums_alike(DType::kF32),
                                                          .outline = {outline_alike}});
}

}  // namespace temper::backends
