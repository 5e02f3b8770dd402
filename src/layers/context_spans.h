#pragma once
#include <vector>

#include "layers/decoder_input.h"

namespace temper::layers {

// Consecutive tokens of one context rank, between tokens of others or the ends of the pass.
struct ContextSpan {
  int rank = 0;
  int64_t place = 0;             // among the rank's spans
  int64_t first = 0, count = 0;  // among the rank's tokens
  // The pieces of documents in it, among those of the rank.
  int64_t first_piece = 0, pieces = 0;
  int64_t first_tokens = 0, last_tokens = 0;  // of its first piece, and of its last one
  bool enters = false;                        // its first piece continues the last one of the span before it
  bool leaves = false;                        // its last piece continues in the span behind it

  bool through() const { return enters && leaves && pieces == 1; }  // one document, from before it to behind
};

// The documents of a pass where context ranks have spans of its tokens and what a document has seen passes
// from span to span. All ranks know all spans.
struct ContextSpans {
  std::vector<ContextSpan> all;  // in the order of the tokens
  int64_t most = 0;              // spans that a rank has, at most
  Tensor starts;                 // [pieces + 1] int32, on the CPU: of this rank's tokens (cu_seqlens)
  std::vector<size_t> own;       // which of all are this rank's, in their order

  bool any_enters() const;
  bool any_through() const;
  // Where a tensor that has `most` rows of each rank, rank after rank, has that of a span.
  int64_t row(size_t span) const { return all[span].rank * most + all[span].place; }

  // The last tokens of a span.
  struct Tail {
    size_t span;
    int64_t count;
  };
  // Of the document that enters a span, the `tokens` tokens before it, or as many as there are, the nearest
  // first.
  std::vector<Tail> before(size_t span, int64_t tokens) const;
};

ContextSpans context_spans(const DecoderInput& input);

}  // namespace temper::layers
