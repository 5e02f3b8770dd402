#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/threads/per_thread.h"

namespace temper::tokenizers {

// Remembers the ids of short pieces: words repeat. Each thread has its own, for all tokenizers, of a fixed
// size; an owner's number is never given again, so that entries of a destroyed owner are never found and are
// replaced in time.
class PieceCache {
 public:
  static PieceCache& of_this_thread();
  static uint64_t new_owner();

  class Key {
   public:
    Key(uint64_t owner, std::string_view piece)
        : owner_(owner), piece_(piece), hash_(piece.size() > kLongest ? 0 : hash(piece, owner)) {}

   private:
    friend PieceCache;
    static uint64_t hash(std::string_view piece, uint64_t owner);
    uint64_t owner_;
    std::string_view piece_;
    uint64_t hash_;
  };
  bool get(const Key& key, std::vector<int32_t>& ids);  // appends
  void put(const Key& key, std::span<const int32_t> ids);

 private:
  static constexpr size_t kSets = 8192, kWays = 2, kBytes = 53, kLongest = kBytes - sizeof(int32_t);
  // One line of the processor's cache: the piece, behind it its ids.
  struct alignas(64) Entry {
    uint64_t owner;  // 0 when free
    uint8_t size, count;
    bool used;  // found since it was last looked at for eviction
    char bytes[kBytes];
  };
  struct Set {
    Entry ways[kWays];
  };
  friend class PerThread<PieceCache>;
  PieceCache() : sets_(std::make_unique<Set[]>(kSets)) {}
  std::unique_ptr<Set[]> sets_;
};

}  // namespace temper::tokenizers
