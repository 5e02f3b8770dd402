#include "formats/scanned_text.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace temper::formats {
namespace {

// Giving back costs a call and a second of reading nothing: rarely, but long before memory is short.
constexpr size_t kReleased = size_t{64} << 20;

// Several times as fast as std::count: sums of bytes fit in a byte for 255 rounds, so that compilers use
// whole vectors.
int64_t count_lines(std::string_view text) {
  constexpr size_t kLanes = 64;
  constexpr size_t kRounds = 255;
  int64_t lines = 0;
  while (text.size() >= kLanes) {
    std::array<uint8_t, kLanes> sums{};
    const size_t rounds = std::min(kRounds, text.size() / kLanes);
    const char* bytes = text.data();
    for (size_t round = 0; round < rounds; ++round, bytes += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += bytes[lane] == '\n';
    lines = std::accumulate(sums.begin(), sums.end(), lines);
    text.remove_prefix(rounds * kLanes);
  }
  return lines + std::count(text.begin(), text.end(), '\n');
}

}  // namespace

void ScannedText::pass_block(size_t end) {
  const std::string_view block = all().substr(passed_, end - passed_);
  hasher_.update(block.data(), block.size());
  lines_.push_back(lines_.back() + count_lines(block));
  passed_ = end;
}

void ScannedText::pass_blocks(size_t end) {
  while (end - passed_ >= kBlock) pass_block(passed_ + kBlock);
  if (passed_ - released_ < kReleased) return;
  file_.release(released_, passed_);
  released_ = passed_;
}

void ScannedText::finish() {
  pass_blocks(all().size());
  if (passed_ < all().size()) pass_block(all().size());
  if (released_ > 0) file_.release(released_, all().size());
  digest_ = hasher_.digest();
}

int64_t ScannedText::line(size_t offset) const {
  const size_t block = offset / kBlock;
  return 1 + lines_[block] + count_lines(all().substr(block * kBlock, offset - block * kBlock));
}

size_t ScannedText::column(size_t offset) const {
  const std::string_view before = all().substr(0, offset);
  const size_t end = before.rfind('\n');
  return end == std::string_view::npos ? offset + 1 : offset - end;
}

}  // namespace temper::formats
