#include "tokenizers/tokens/piece_cache.h"

#include <atomic>

namespace temper::tokenizers {
namespace {

template <class T>
uint64_t load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

PieceCache& PieceCache::of_this_thread() {
  static const PerThread<PieceCache> caches;
  return caches.get();
}

uint64_t PieceCache::new_owner() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Words of eight bytes, the last of which overlaps the one before it.
uint64_t PieceCache::Key::hash(std::string_view piece, uint64_t owner) {
  const char* at = piece.data();
  const size_t size = piece.size();
  uint64_t hash = (owner << 8) ^ size;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  };
  if (size >= 8) {
    for (size_t i = 0; i + 8 < size; i += 8) mix(load<uint64_t>(at + i));
    mix(load<uint64_t>(at + size - 8));
  } else if (size >= 4) {
    mix(load<uint32_t>(at) << 32 | load<uint32_t>(at + size - 4));
  } else {
    mix(load<uint8_t>(at) << 16 | load<uint8_t>(at + size / 2) << 8 | load<uint8_t>(at + size - 1));
  }
  return hash;
}

bool PieceCache::get(const Key& key, std::vector<int32_t>& ids) {
  const size_t size = key.piece_.size();
  if (size > kLongest) return false;
  for (Entry& entry : sets_[key.hash_ % kSets].ways) {
    if (entry.owner != key.owner_ || entry.size != size) continue;
    if (std::memcmp(entry.bytes, key.piece_.data(), size) != 0) continue;
    entry.used = true;
    const size_t start = ids.size();
    ids.resize(start + entry.count);
    std::memcpy(&ids[start], entry.bytes + size, entry.count * sizeof(int32_t));
    return true;
  }
  return false;
}

void PieceCache::put(const Key& key, std::span<const int32_t> ids) {
  const size_t size = key.piece_.size();
  if (size + ids.size_bytes() > kBytes) return;
  Set& set = sets_[key.hash_ % kSets];
  Entry* victim = nullptr;
  for (Entry& entry : set.ways) {
    if (!entry.used) victim = &entry;
    entry.used = false;
  }
  if (!victim) victim = &set.ways[(key.hash_ / kSets) % kWays];
  victim->owner = key.owner_;
  victim->size = static_cast<uint8_t>(size);
  victim->count = static_cast<uint8_t>(ids.size());
  std::memcpy(victim->bytes, key.piece_.data(), size);
  std::memcpy(victim->bytes + size, ids.data(), ids.size_bytes());
}

}  // namespace temper::tokenizers
