#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/normalizer.h"

namespace temper::tokenizers {

// Where the bytes of a normalized text come from.
class Alignment {
 public:
  explicit Alignment(size_t size = 0) : size_(size) {}  // nothing changed
  // Characters that normalization changed belong to the whole group of characters they came from.
  bool changed() const { return !parts_.empty(); }
  size_t source_begin(size_t at) const;  // of what begins at `at`
  size_t source_end(size_t at) const;    // of what ends before `at`, > 0
  // The next part: where it begins in the normalized and in the source text.
  void add(size_t begin, size_t source, bool changed);

 private:
  struct Part {
    size_t begin, source;
    bool changed;
  };
  size_t part_of(size_t at) const;
  std::vector<Part> parts_;  // of a text that changed: from its beginning, without gaps
  size_t size_;              // of the source
};

struct AlignedText {
  std::string_view text;  // of the source, or of the buffer
  Alignment alignment;
};

AlignedText normalize_aligned(const Normalizer& normalizer, std::string_view text, std::string& buffer);

}  // namespace temper::tokenizers
