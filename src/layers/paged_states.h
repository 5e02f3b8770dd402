#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/paged_sequences.h"

namespace temper::layers {

// What all sequences of an engine share.
struct PageSizes {
  int64_t pages = 0, page_tokens = 0;  // of what mixers keep of every token
  int64_t slots = 0;                   // of what they keep of a sequence whatever its length
};

// What one mixer keeps of many sequences, tag kv_cache. Where a sequence's tokens lie is said by its page
// table, which is the same for all mixers; what does not grow with it is in its slot. What no sequence has
// may hold anything, NaN too.
class MixerPages {
 public:
  virtual ~MixerPages() = default;
  virtual bool has_slots() const { return false; }
  virtual void clear_slot(int64_t /*slot*/) const {}  // the beginning of a sequence
  virtual void copy_slot(int64_t /*from*/, int64_t /*to*/) const {}
  virtual void grow(int64_t /*pages*/) {}  // to more pages, at other addresses; what they hold stays
};

// `held` [rows, …] at the beginning of more rows.
Tensor with_more_rows(const Tensor& held, int64_t rows);

// The sequences of one pass: those that decode first, each with one token; then those with parts of prompts.
struct PagedBatch {
  ops::PagedSequences sequences;
  Tensor slots;          // [sequences] int32 on the CPU; where mixers have them
  int64_t decoding = 0;  // sequences, and tokens
};

// Those of a model, layer by layer.
class PagedStates {
 public:
  PagedStates(std::vector<std::unique_ptr<MixerPages>> layers, const PageSizes& sizes)
      : layers_(std::move(layers)), sizes_(sizes) {}

  const PageSizes& sizes() const { return sizes_; }
  const MixerPages& layer(size_t index) const { return *layers_[index]; }
  bool has_slots() const;
  void clear_slot(int64_t slot) const;
  void copy_slot(int64_t from, int64_t to) const;
  void grow(int64_t pages);  // of all layers, as of MixerPages

 private:
  std::vector<std::unique_ptr<MixerPages>> layers_;
  PageSizes sizes_;
};

}  // namespace temper::layers
