#include "tokenizers/models/unigram.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

constexpr double kUnkPenalty = 10;

PrefixTrie trie_of(const Vocabulary& vocabulary, size_t count) {
  PrefixTrie::Entries entries;
  entries.reserve(count);
  for (int32_t id = 0; id < static_cast<int32_t>(count); ++id)
    entries.emplace_back(vocabulary.spelling(id), id);
  return PrefixTrie(std::move(entries));
}

}  // namespace

// The best way to where a node stands: its last token, from `start` on.
struct Unigram::Node {
  double score = 0;
  size_t start = kNowhere;
  int32_t id = 0;
  static constexpr size_t kNowhere = ~size_t{0};

  void offer(double other, size_t from, int32_t token) {
    if (start != kNowhere && other <= score) return;  // of equals the first stays
    *this = {other, from, token};
  }
};

Unigram::Unigram(const Vocabulary& vocabulary, std::vector<double> scores, std::optional<int32_t> unk_id,
                 bool byte_fallback, std::string_view where)
    : vocabulary_(vocabulary),
      scores_(std::move(scores)),
      unk_(unk_id),
      bytes_(byte_fallback ? ByteTokens(vocabulary) : ByteTokens()),
      trie_(trie_of(vocabulary, scores_.size())),
      where_(where) {
  if (unk_ && (*unk_ < 0 || *unk_ >= static_cast<int32_t>(scores_.size())))
    fail("[{}] model.unk_id is {}, expected the id of one of the {} tokens", where, *unk_, scores_.size());
  double least = std::numeric_limits<double>::infinity();
  for (const double score : scores_) least = std::min(least, score);
  unk_score_ = least - kUnkPenalty;
}

// The tokens of the best path; those that are unknown and stand side by side are one.
std::vector<ByteSpan> Unigram::best_path(std::string_view piece) const {
  std::vector<Node> nodes(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const size_t size = next_utf8(piece.substr(at)).size;
    const double score = nodes[at].score;
    bool single = false;
    trie_.prefixes(piece.substr(at), [&](size_t length, int32_t id) {
      nodes[at + length].offer(scores_[static_cast<size_t>(id)] + score, at, id);
      single |= length == size;
    });
    if (!single) {
      if (!unk_) fail("[{}] model has no unk_id, and no token for '{}'", where_, piece.substr(at, size));
      nodes[at + size].offer(unk_score_ + score, at, *unk_);
    }
    at += size;
  }
  std::vector<ByteSpan> path;
  bool unknown_after = false;
  for (size_t end = piece.size(); end > 0;) {
    const Node& node = nodes[end];
    const bool unknown = unk_ && node.id == *unk_;
    if (unknown && unknown_after)
      path.back().begin = node.start;
    else
      path.push_back({node.start, end});
    unknown_after = unknown;
    end = node.start;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

void Unigram::add_token(std::string_view piece, ByteSpan span, std::vector<int32_t>& ids,
                        std::vector<ByteSpan>* spans) const {
  const std::string_view text = piece.substr(span.begin, span.end - span.begin);
  const auto add = [&](int32_t id) {
    ids.push_back(id);
    if (spans) spans->push_back(span);
  };
  const auto known = vocabulary_.find(text);
  if (known && vocabulary_.in_model(*known)) return add(*known);
  if (!bytes_.covers(text)) return add(*unk_);
  for (size_t at = 0; at < text.size();) {
    const size_t size = next_utf8(text.substr(at)).size;
    const ByteSpan character{span.begin + at, span.begin + at + size};
    for (const char byte : text.substr(at, size)) {
      ids.push_back(bytes_.id(byte));
      if (spans) spans->push_back(character);
    }
    at += size;
  }
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<ByteSpan>* spans) const {
  for (const ByteSpan span : best_path(piece)) add_token(piece, span, ids, spans);
}

}  // namespace temper::tokenizers
