#include "tokenizers/bpe.h"

#include <queue>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizers/byte_level.h"
#include "tokenizers/piece_cache.h"

namespace temper::tokenizers {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// A token in the making; the piece's symbols are a doubly linked list through their positions.
struct Symbol {
  int32_t id;  // kGone once merged into the symbol before
  int32_t previous, next;
};
constexpr int32_t kGone = -1, kNone = -1;

struct Candidate {
  uint32_t rank;
  int32_t position;
  int32_t result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};
using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  size_t capacity = 16;
  while (capacity < merges.size() * 2) capacity *= 2;
  entries_.resize(capacity);
  mask_ = capacity - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    entries_[slot(key)] = {key, static_cast<uint32_t>(rank), merges[rank].result};
  }
}

// The entry with this key, or the free one where it belongs.
size_t MergeTable::slot(uint64_t key) const {
  uint64_t mixed = key * 0x9E3779B97F4A7C15u;
  size_t at = (mixed ^ (mixed >> 32)) & mask_;
  while (entries_[at].key != key && entries_[at].key != kFree) at = (at + 1) & mask_;
  return at;
}

const MergeTable::Entry* MergeTable::find(int32_t left, int32_t right) const {
  const Entry& entry = entries_[slot(pair_key(left, right))];
  return entry.key == kFree ? nullptr : &entry;
}

void merge_symbols(const MergeTable& merges, std::vector<int32_t>& ids) {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : kNone});
  const auto at = [&](int32_t position) -> Symbol& { return symbols[static_cast<size_t>(position)]; };
  Queue queue;
  const auto consider = [&](int32_t position) {
    if (position == kNone || at(position).next == kNone) return;
    const auto* entry = merges.find(at(position).id, at(at(position).next).id);
    if (entry) queue.push({entry->rank, position, entry->result});
  };
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (left.id == kGone || left.next == kNone) continue;
    Symbol& right = at(left.next);
    const auto* entry = merges.find(left.id, right.id);
    if (!entry || entry->result != best.result) continue;  // a neighbour changed since it was queued
    left.id = best.result;
    right.id = kGone;
    left.next = right.next;
    if (left.next != kNone) at(left.next).previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  ids.clear();
  for (int32_t i = count > 0 ? 0 : kNone; i != kNone; i = at(i).next) ids.push_back(at(i).id);
}

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool ignore_merges,
         std::string_view where)
    : merges_(merges), cache_(std::make_unique<PieceCache>()) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const std::string spelling = spelling_of_bytes(std::string(1, static_cast<char>(byte)));
    const auto id = vocabulary.find(spelling);
    if (!id || !vocabulary.in_model(*id))
      fail("[{}] model.vocab has no token '{}' for the byte 0x{:02X}; all 256 are needed", where, spelling,
           byte);
    byte_ids_[byte] = *id;
  }
  if (!ignore_merges) return;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.bytes(id);
    if (vocabulary.has(id) && vocabulary.in_model(id) && spelling_of_bytes(bytes) == vocabulary.spelling(id))
      whole_pieces_.emplace(bytes, id);
  }
}

Bpe::~Bpe() = default;

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() == 1) return ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end())
    return ids.push_back(whole->second);
  if (cache_->get(piece, ids)) return;
  const size_t start = ids.size();
  merge(piece, ids);
  cache_->put(piece, std::span(ids).subspan(start));
}

void Bpe::merge(std::string_view piece, std::vector<int32_t>& ids) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  for (const char byte : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  merge_symbols(merges_, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace temper::tokenizers
