#pragma once
#include <array>
#include <cstdint>

namespace temper {

// What random numbers are for: streams with different purposes never overlap.
enum class RandomPurpose : uint32_t {
  kInitialization = 1,
  kShuffle = 2,
  kSampling = 3,
  kRounding = 4,
  kData = 5,
  kDropout = 6
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four words for one
// counter under one key. No state: the same arguments give the same words everywhere.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Numbers keyed by (seed, purpose, step, element).
class Random {
 public:
  Random(uint64_t seed, RandomPurpose purpose, uint64_t step = 0)
      : seed_(seed), purpose_(static_cast<uint32_t>(purpose)), step_(step) {}

  std::array<uint32_t, 4> words(uint64_t element) const;
  // What Philox makes those words of. The element is the counter's first two words, the lower half first.
  std::array<uint32_t, 4> counter(uint64_t element) const;
  std::array<uint32_t, 2> key() const;
  uint32_t bits(uint64_t element) const;
  double uniform(uint64_t element) const;                  // in [0, 1), 53 bits
  double normal(uint64_t element) const;                   // mean 0, variance 1 (Box–Muller)
  uint64_t below(uint64_t bound, uint64_t element) const;  // in [0, bound), bound > 0

 private:
  uint64_t seed_;
  uint32_t purpose_;
  uint64_t step_;
};

}  // namespace temper
