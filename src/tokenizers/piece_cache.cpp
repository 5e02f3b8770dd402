#include "tokenizers/piece_cache.h"

namespace temper::tokenizers {

bool PieceCache::get(std::string_view piece, std::vector<int32_t>& ids) {
  if (piece.size() > kLongestPiece) return false;
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(piece);
  if (found == shard.entries.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void PieceCache::put(std::string_view piece, std::span<const int32_t> ids) {
  if (piece.size() > kLongestPiece) return;
  Shard& shard = shard_of(piece);
  const std::lock_guard lock(shard.mutex);
  if (shard.entries.size() < kEntriesPerShard)
    shard.entries.emplace(std::string(piece), std::vector<int32_t>(ids.begin(), ids.end()));
}

}  // namespace temper::tokenizers
