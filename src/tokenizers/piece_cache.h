#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace temper::tokenizers {

// Remembers the ids of short pieces: words repeat. Split by hash so that threads rarely wait for each other;
// a full shard stops learning.
class PieceCache {
 public:
  bool get(std::string_view piece, std::vector<int32_t>& ids);  // appends
  void put(std::string_view piece, std::span<const int32_t> ids);

 private:
  static constexpr size_t kShards = 64, kEntriesPerShard = 1024, kLongestPiece = 48;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> entries;
  };
  Shard& shard_of(std::string_view piece) { return shards_[(Hash()(piece) >> 48) % kShards]; }
  std::array<Shard, kShards> shards_;
};

}  // namespace temper::tokenizers
