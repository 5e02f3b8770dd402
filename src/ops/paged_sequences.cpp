#include "ops/paged_sequences.h"

#include <algorithm>

#include "base/error.h"
#include "ops/checks.h"

namespace temper::ops {
namespace {

// Adds the tokens [begin, end) of a sequence, of which the first is row `row`.
void add_runs(const PagedSequences& sequences, int64_t sequence, int64_t begin, int64_t end,
              int64_t page_tokens, int64_t row, std::vector<PageRun>& runs) {
  const int32_t* const pages = sequences.pages_of(sequence);
  for (int64_t token = begin; token < end;) {
    const int64_t first = token % page_tokens, tokens = std::min(page_tokens - first, end - token);
    runs.push_back({row, pages[token / page_tokens] * page_tokens + first, tokens});
    token += tokens;
    row += tokens;
  }
}

// Pages as [places, …].
Tensor places_of(const Tensor& pages) {
  std::vector<int64_t> sizes(pages.shape().begin() + 1, pages.shape().end());
  sizes[0] *= pages.dim(0);
  return pages.reshape(Shape(sizes));
}

}  // namespace

std::vector<int32_t> PagedSequences::starts_k() const {
  std::vector<int32_t> starts{0};
  for (int64_t s = 0; s < count(); ++s) starts.push_back(starts.back() + static_cast<int32_t>(length(s)));
  return starts;
}

PagedSequences PagedSequences::part(int64_t first, int64_t sequences) const {
  std::vector<int32_t> own;
  for (int64_t s = first; s <= first + sequences; ++s)
    own.push_back(static_cast<int32_t>(start(s) - start(first)));
  return {Tensor::from(own), held.narrow(0, first, sequences), pages.narrow(0, first, sequences)};
}

void check_paged_sequences(std::string_view op, const PagedSequences& sequences, int64_t tokens,
                           int64_t pages, int64_t page_tokens) {
  check_ndim(op, "held", sequences.held, 1);
  check_ndim(op, "pages", sequences.pages, 2);
  const int64_t count = sequences.count(), width = sequences.pages.dim(1);
  check_shape(op, "starts", sequences.starts, {count + 1});
  check_shape(op, "pages", sequences.pages, {count, width});
  for (const auto& [label, tensor] :
       {std::pair{"starts", &sequences.starts}, {"held", &sequences.held}, {"pages", &sequences.pages}}) {
    check_dtype(op, label, *tensor, DType::kI32);
    check_contiguous(op, label, *tensor);
  }
  if (sequences.start(0) != 0 || sequences.start(count) != tokens)
    fail("[{}] starts go from {} to {}, need 0 to {}", op, sequences.start(0), sequences.start(count),
         tokens);
  for (int64_t s = 0; s < count; ++s) {
    if (sequences.added(s) < 1 || sequences.held_by(s) < 0)
      fail("[{}] sequence {} holds {} tokens and gets {}; it needs 0 or more, and at least one", op, s,
           sequences.held_by(s), sequences.added(s));
    if (sequences.length(s) > width * page_tokens)
      fail("[{}] sequence {} has {} tokens, no room in {} pages of {}", op, s, sequences.length(s), width,
           page_tokens);
    for (int64_t i = 0; i * page_tokens < sequences.length(s); ++i)
      if (const int32_t page = sequences.pages_of(s)[i]; page < 0 || page >= pages)
        fail("[{}] sequence {} has page {}, but the pages are 0 to {}", op, s, page, pages - 1);
  }
}

std::vector<PageRun> runs_to_write(const PagedSequences& sequences, int64_t page_tokens) {
  std::vector<PageRun> runs;
  for (int64_t s = 0; s < sequences.count(); ++s)
    add_runs(sequences, s, sequences.held_by(s), sequences.length(s), page_tokens, sequences.start(s), runs);
  return runs;
}

void write_pages(const Tensor& pages, const PagedSequences& sequences, const Tensor& rows) {
  const Tensor places = places_of(pages);
  for (const PageRun& run : runs_to_write(sequences, pages.dim(1)))
    places.narrow(0, run.place, run.tokens).copy_from(rows.narrow(0, run.row, run.tokens));
}

Tensor read_pages(const Tensor& pages, const PagedSequences& sequences) {
  const Tensor places = places_of(pages);
  const std::vector<int32_t> starts = sequences.starts_k();
  std::vector<PageRun> runs;
  for (int64_t s = 0; s < sequences.count(); ++s)
    add_runs(sequences, s, 0, sequences.length(s), pages.dim(1), starts[static_cast<size_t>(s)], runs);
  Shape shape = places.shape();
  shape[0] = starts.back();
  const Tensor rows = Tensor::empty(shape, pages.dtype(), MemoryTag::kActivations, pages.device());
  for (const PageRun& run : runs)
    rows.narrow(0, run.row, run.tokens).copy_from(places.narrow(0, run.place, run.tokens));
  return rows;
}

}  // namespace temper::ops
