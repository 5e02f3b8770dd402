#include "base/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/files.h"

namespace temper {

uint64_t hash64(std::string_view data, uint64_t seed) {
  return XXH3_64bits_withSeed(data.data(), data.size(), seed);
}

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Hasher::update(const void* data, size_t size) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, size);
}

std::string Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_file(const std::string& path) {
  const MappedFile file(path);
  Hasher hasher;
  hasher.update(file.data(), file.size());
  return hasher.digest();
}

}  // namespace temper
