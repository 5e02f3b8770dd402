#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

uint64_t hash64(std::string_view data, uint64_t seed = 0);  // XXH3, stable across machines and versions

// Streaming 128-bit XXH3; digest() as 32 hexadecimal digits. For integrity, not for security.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, size_t size);
  std::string digest() const;

 private:
  void* state_;
};

std::string hash_file(const std::string& path);  // Hasher's digest of the whole file

}  // namespace temper
