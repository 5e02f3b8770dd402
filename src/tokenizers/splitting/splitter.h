#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "tokenizers/splitting/fast_splitters.h"
#include "tokenizers/text/pattern.h"

namespace temper::tokenizers {

// What becomes of the text that a Split matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts each piece at the matches of a pattern.
class Split {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  explicit Split(PieceScanner scanner) : scanner_(scanner) {}                  // kIsolated
  void run(std::string_view piece, std::vector<std::string_view>& out) const;  // appends; never empty pieces

  PieceScanner scanner() const { return scanner_; }  // null: it cuts at a pattern's matches

  // Calls `use` with each piece in order.
  template <class Use>
  void each(std::string_view text, const Use& use) const {
    if (scanner_) {
      for (const CodePointTable& classes = character_classes(); !text.empty();) {
        const size_t size = scanner_(classes, text);
        use(text.substr(0, size));
        text.remove_prefix(size);
      }
      return;
    }
    std::vector<std::string_view> pieces;
    run(text, pieces);
    for (const std::string_view piece : pieces) use(piece);
  }

 private:
  struct Part {
    size_t begin, end;
    bool match;
  };
  std::vector<Part> find_parts(std::string_view piece) const;
  PieceScanner scanner_ = nullptr;
  std::optional<Pattern> pattern_;  // where there is no scanner
  SplitBehavior behavior_ = SplitBehavior::kIsolated;
  bool invert_ = false;
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

// The pre-tokenizer: splits, one after the other, the byte level, and splits of what that spells.
class Splitter {
 public:
  static Splitter from_json(const Json& json, std::string_view where);
  bool cuts_characters() const { return !later_splits_.empty(); }  // a piece may end inside one
  bool cuts_at_words() const;  // see fast_splitters.h; nothing is put before a part of a text

  // Calls `use` with each Piece in order. `text` is valid UTF-8; before one that is `continued` no space is
  // put.
  template <class Use>
  void run(std::string_view text, bool continued, const Use& use) const {
    split(0, text, [&](std::string_view part) {
      const auto begin = static_cast<size_t>(part.data() - text.data());
      if (!add_prefix_space_ || part.starts_with(' ') || (continued && begin == 0))
        return byte_level(part, begin, 0, use);
      std::string prefixed(1, ' ');
      byte_level(prefixed.append(part), begin, 1, use);
    });
  }

 private:
  template <class Use>
  void split(size_t level, std::string_view text, const Use& use) const {
    if (level == splits_.size()) return use(text);
    splits_[level].each(text, [&](std::string_view part) { split(level + 1, part, use); });
  }
  template <class Use>
  void byte_level(std::string_view part, size_t begin, size_t added, const Use& use) const {
    const auto whole = [&](std::string_view cut) {
      const auto at = static_cast<size_t>(cut.data() - part.data());
      use(Piece{cut, begin + (at > added ? at - added : 0), at < added ? added - at : 0});
    };
    if (later_splits_.empty()) return level_pieces(part, whole);
    level_pieces(part, [&](std::string_view cut) {
      for (const std::string_view part_of_cut : split_spelled(cut)) whole(part_of_cut);
    });
  }
  template <class Use>
  void level_pieces(std::string_view part, const Use& piece) const {
    if (byte_level_split_)
      byte_level_split_->each(part, piece);
    else if (!part.empty())
      piece(part);
  }

  std::vector<std::string_view> split_spelled(
      std::string_view piece) const;  // by the splits behind ByteLevel

  std::vector<Split> splits_, later_splits_;
  std::optional<Split> byte_level_split_;
  bool add_prefix_space_ = false;
};

}  // namespace temper::tokenizers
