#pragma once
#include <cstdint>

#include "base/random.h"

namespace temper::backends {

// The words of temper::Random(seed, purpose, step).words(element), on the device.
__device__ inline uint4 philox_words(uint64_t seed, uint32_t purpose, uint64_t step, uint64_t element) {
  uint32_t c0 = static_cast<uint32_t>(element), c1 = static_cast<uint32_t>(element >> 32);
  uint32_t c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32) ^ (purpose << 24);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

}  // namespace temper::backends
