#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/text/byte_span.h"

namespace temper::tokenizers {

// Where the bytes of a rewritten text come from.
class Alignment {
 public:
  explicit Alignment(size_t size = 0) : size_(size) {}  // nothing changed
  // The source of [begin, end). Characters that changed belong to all that they came from; what was inserted
  // comes from nothing.
  ByteSpan source(ByteSpan span) const;
  // The next part: from `begin` in the rewritten text on, made of `source`.
  void add(size_t begin, ByteSpan source, bool changed);

 private:
  struct Part {
    size_t begin;
    ByteSpan source;
    bool changed;
  };
  size_t part_of(size_t at) const;
  std::vector<Part> parts_;  // of a text that changed: from its beginning, without gaps
  size_t size_;              // of the source
};

struct AlignedText {
  std::string text;
  Alignment alignment;
};

// Rewrites a text, from left to right.
class TextRewriter {
 public:
  TextRewriter(std::string_view source, bool aligned) : source_(source), aligned_(aligned) {}
  void keep(size_t bytes);                            // the next bytes as they are
  void replace(size_t bytes, std::string_view text);  // `text` instead of the next bytes
  std::string_view rest() const { return source_.substr(at_); }
  size_t size() const { return out_.text.size(); }  // so far
  AlignedText finish();                             // keeps the rest

 private:
  void add_part(size_t bytes, bool changed);
  std::string_view source_;
  size_t at_ = 0;
  bool aligned_;  // else the alignment is left empty
  AlignedText out_;
};

// The alignments of several rewritings, one after the other.
class Alignments {
 public:
  void add(Alignment alignment) { steps_.push_back(std::move(alignment)); }
  ByteSpan source(ByteSpan span) const;

 private:
  std::vector<Alignment> steps_;
};

}  // namespace temper::tokenizers
