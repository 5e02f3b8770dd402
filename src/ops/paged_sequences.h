#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace temper::ops {

// Sequences whose tokens lie in pages, memory for some consecutive tokens each, and the tokens that a pass
// adds to them. On the CPU, whatever the device: work is planned by the lengths.
struct PagedSequences {
  Tensor starts;  // [sequences + 1] int32: of the new tokens, from 0 to their number, rising (cu_seqlens)
  Tensor held;    // [sequences] int32: tokens that the sequence has already
  // [sequences, width] int32: its pages in the order of its tokens. Entries behind the last that it needs are
  // not read.
  Tensor pages;

  int64_t count() const { return held.numel(); }
  int64_t start(int64_t sequence) const { return at(starts, sequence); }
  int64_t added(int64_t sequence) const { return start(sequence + 1) - start(sequence); }
  int64_t held_by(int64_t sequence) const { return at(held, sequence); }
  int64_t length(int64_t sequence) const { return held_by(sequence) + added(sequence); }
  const int32_t* pages_of(int64_t sequence) const { return pages.data<int32_t>() + sequence * pages.dim(1); }
  std::vector<int32_t> starts_k() const;  // of all tokens of all sequences, new ones too: [sequences + 1]
  // Some consecutive ones, as a pass of their own.
  PagedSequences part(int64_t first, int64_t sequences) const;

 private:
  static int64_t at(const Tensor& tensor, int64_t i) { return tensor.data<int32_t>()[i]; }
};

// An Error "[op] …" where they are not what is said above, of `tokens` new tokens and `pages` pages of
// `page_tokens`.
void check_paged_sequences(std::string_view op, const PagedSequences& sequences, int64_t tokens,
                           int64_t pages, int64_t page_tokens);

// Consecutive tokens that lie in one page: the first is row `row` of some rows, and lies at page ·
// page_tokens + its place there.
struct PageRun {
  int64_t row, place, tokens;
};
std::vector<PageRun> runs_to_write(const PagedSequences& sequences,
                                   int64_t page_tokens);  // of the new tokens

// rows [tokens, …] of the new tokens to their places in pages [pages, page_tokens, …], of the same dtype.
void write_pages(const Tensor& pages, const PagedSequences& sequences, const Tensor& rows);
// The rows of all tokens of all sequences, one sequence behind the other: [starts_k().back(), …], compact.
Tensor read_pages(const Tensor& pages, const PagedSequences& sequences);

}  // namespace temper::ops
