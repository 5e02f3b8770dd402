#include "base/random.h"

#include <cmath>
#include <numbers>

namespace temper {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0], product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

std::array<uint32_t, 4> Random::words(uint64_t element) const { return philox4x32(counter(element), key()); }

std::array<uint32_t, 4> Random::counter(uint64_t element) const {
  // The purpose takes the top of the step's words: steps stay below 2^56, purposes below 2^8.
  return {static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32), static_cast<uint32_t>(step_),
          static_cast<uint32_t>(step_ >> 32) ^ (purpose_ << 24)};
}

std::array<uint32_t, 2> Random::key() const {
  return {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
}

uint32_t Random::bits(uint64_t element) const { return words(element)[0]; }

double Random::uniform(uint64_t element) const {
  const auto w = words(element);
  return static_cast<double>((uint64_t{w[0]} << 32 | w[1]) >> 11) * 0x1p-53;
}

double Random::normal(uint64_t element) const {
  const auto w = words(element);
  const double u = (static_cast<double>(uint64_t{w[0]} << 32 | w[1]) + 1) * 0x1p-64;  // in (0, 1]
  const double v = static_cast<double>(uint64_t{w[2]} << 32 | w[3]) * 0x1p-64;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t Random::below(uint64_t bound, uint64_t element) const {
  const auto w = words(element);
  const auto wide = static_cast<unsigned __int128>(uint64_t{w[0]} << 32 | w[1]) * bound;
  return static_cast<uint64_t>(wide >> 64);
}

}  // namespace temper
