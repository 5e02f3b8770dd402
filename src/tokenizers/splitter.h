#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizers/pattern.h"

namespace temper::tokenizers {

// What becomes of the text that a Split matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts each piece at the matches of a pattern.
class Split {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void run(std::string_view piece, std::vector<std::string_view>& out) const;  // appends; never empty pieces

 private:
  struct Part {
    size_t begin, end;
    bool match;
  };
  std::vector<Part> find_parts(std::string_view piece) const;
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

SplitBehavior behavior_of(const Json& component, std::string_view otherwise, const std::string& place);
Split split_of(const Json& component, const std::string& place);   // reads a Split
Split digits_of(const Json& component, const std::string& place);  // reads Digits

// A piece of the text, at `begin` in it; its first `added` bytes (a space, if any) are not from the text.
struct Piece {
  std::string_view text;
  size_t begin = 0;
  size_t added = 0;
};

// The pre-tokenizer: splits, one after the other, then the byte level, which is always last.
class Splitter {
 public:
  static Splitter from_json(const Json& json, std::string_view where);

  // Calls `use` with each piece in order. `text` is valid UTF-8.
  void run(std::string_view text, const std::function<void(const Piece&)>& use) const;

 private:
  std::vector<Split> splits_;
  std::vector<Split> byte_level_splits_;  // none or one
  bool add_prefix_space_ = false;
};

}  // namespace temper::tokenizers
