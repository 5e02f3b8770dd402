#include "losses/top_tokens.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <span>

#include "base/error.h"
#include "base/threads/threads.h"
#include "losses/vocabulary_rows.h"
#include "primitives/primitives.h"

namespace temper::losses {
namespace {

namespace p = primitives;

// Whole numbers in the order of (logit, lower id): the larger, the sooner.
uint64_t key_of(float logit, int64_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit);
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(id);
}
int32_t id_of(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }
float logit_of(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// The `most` largest keys of a row, the largest first. Candidates are kept until they are four times as many,
// and then only the best of them, so that most of a row is compared with one number.
void largest_keys(std::span<const float> logits, int64_t first_id, std::span<uint64_t> best,
                  std::vector<uint64_t>& candidates) {
  const size_t most = best.size(), room = 4 * most + 64;
  candidates.clear();
  uint64_t least = 0;
  const auto cut = [&] {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(most - 1),
                     candidates.end(), std::greater<>());
    candidates.resize(most);
    least = candidates[most - 1];
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t key = key_of(logits[i], first_id + static_cast<int64_t>(i));
    if (key < least) continue;
    candidates.push_back(key);
    if (candidates.size() == room) cut();
  }
  std::partial_sort_copy(candidates.begin(), candidates.end(), best.begin(), best.end(), std::greater<>());
}

// [tokens, most]: of each token's logits.
std::vector<uint64_t> keys_of(const Tensor& logits, int64_t first_id, int64_t most) {
  const int64_t tokens = logits.dim(0), width = logits.dim(1);
  const Tensor here = logits.on({}).to(DType::kF32).contiguous();
  std::vector<uint64_t> keys(static_cast<size_t>(tokens * most));
  parallel_ranges(tokens, (int64_t{1} << 15) / width + 1, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> candidates;
    for (int64_t t = begin; t < end; ++t)
      largest_keys(std::span(here.data<float>() + t * width, static_cast<size_t>(width)), first_id,
                   std::span(keys).subspan(static_cast<size_t>(t * most), static_cast<size_t>(most)),
                   candidates);
  });
  return keys;
}

std::vector<uint64_t> keys_of_ranks(std::vector<uint64_t> own, int64_t tokens, int64_t top_k,
                                    collectives::Group& ranks) {
  const auto parts = ranks.gather("the teacher's largest logits", std::span<const uint64_t>(own));
  std::vector<uint64_t> keys(static_cast<size_t>(tokens * top_k)), all;
  for (int64_t t = 0; t < tokens; ++t) {
    all.clear();
    for (const std::vector<uint64_t>& part : parts) {
      const auto each = static_cast<std::ptrdiff_t>(part.size()) / tokens;
      all.insert(all.end(), part.begin() + t * each, part.begin() + (t + 1) * each);
    }
    if (std::ssize(all) < top_k)
      fail("[distill] top_k is {}, but there are {} logits of each token", top_k, all.size());
    std::partial_sort_copy(all.begin(), all.end(), keys.begin() + t * top_k, keys.begin() + (t + 1) * top_k,
                           std::greater<>());
  }
  return keys;
}

}  // namespace

TopTokens TopTokens::narrow(int64_t start, int64_t length) const {
  return {ids.narrow(0, start, length), logits.narrow(0, start, length), rest.narrow(0, start, length)};
}

TopTokens top_tokens(const Tensor& logits, int64_t top_k, double temperature,
                     const ops::VocabularyRanks& ranks) {
  const int64_t tokens = logits.dim(0), width = logits.dim(1);
  if (top_k < 1) fail("[distill] top_k is {}, needs 1 or more", top_k);
  std::vector<uint64_t> keys = keys_of(logits, ranks.first, std::min(top_k, width));
  if (ranks.group != nullptr) keys = keys_of_ranks(std::move(keys), tokens, top_k, *ranks.group);
  if (std::ssize(keys) != tokens * top_k)
    fail("[distill] top_k is {}, but there are {} logits of each token", top_k, width);
  const Shape shape{tokens, top_k};
  const TopTokens top{Tensor::empty(shape, DType::kI32, MemoryTag::kData),
                      Tensor::empty(shape, DType::kF32, MemoryTag::kData),
                      {}};
  for (size_t i = 0; i < keys.size(); ++i) {
    top.ids.data<int32_t>()[i] = id_of(keys[i]);
    top.logits.data<float>()[i] = logit_of(keys[i]);
  }
  Tape quiet(false);
  const VocabularyRows rows(ranks);
  const Var shifted = rows.shifted(quiet, quiet.constant(logits), temperature);
  return {top.ids, top.logits, rows.log_sum_of_others(quiet, shifted, top.ids).value.on({})};
}

}  // namespace temper::losses
