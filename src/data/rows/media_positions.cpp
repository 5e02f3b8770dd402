#include "data/rows/media_positions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace temper::data {
namespace {

constexpr std::array<const char*, 4> kRuleNames{"qwen", "v4_57", "v5_17", "v5_24"};

const char* name_of(TokenKind kind) { return kind == TokenKind::kPicture ? "picture" : "video"; }

// Goes through the tokens of a pass.
class Counter {
 public:
  Counter(const MediaTokens& tokens, const MediaPositionRules& rules)
      : tokens_(tokens),
        rules_(rules),
        all_(Tensor::empty({3, static_cast<int64_t>(tokens.kinds.size())}, DType::kI32)) {}

  MediaPositions count() {
    for (size_t d = 0, first = 0; d < tokens_.document_lengths.size(); ++d) {
      const auto length = static_cast<size_t>(tokens_.document_lengths[d]);
      const int32_t before = tokens_.continued.empty() ? -1 : tokens_.continued[d];
      highest_ = before < 0 ? -1 : result_.decoding_next[static_cast<size_t>(before)] - 1;
      next_ = before < 0 ? 0 : result_.text_next[static_cast<size_t>(before)];
      if (first + length > tokens_.kinds.size())
        fail("documents of more than the {} tokens of the pass", tokens_.kinds.size());
      for (at_ = first; at_ < first + length;) take(first + length);
      if (frame_ > 0)
        fail("video {} ends after {} of its {} frames", video_, frame_, tokens_.videos[video_].frames);
      result_.text_next.push_back(static_cast<int32_t>(next_));
      result_.decoding_next.push_back(static_cast<int32_t>(highest_ + 1));
      first += length;
    }
    if (at_ != tokens_.kinds.size())
      fail("documents of {} tokens in all, but {} tokens", at_, tokens_.kinds.size());
    if (picture_ != tokens_.pictures.size() || video_ != tokens_.videos.size())
      fail("the tokens are of {} pictures and {} videos, but {} and {} are given", picture_, video_,
           tokens_.pictures.size(), tokens_.videos.size());
    result_.positions = all_;
    return std::move(result_);
  }

 private:
  // One token of text, or all consecutive ones of a picture or a video; they end before token `end`.
  void take(size_t end) {
    const TokenKind kind = tokens_.kinds[at_];
    if (kind == TokenKind::kText) {
      put(next_, next_, next_);
      ++next_;
      return;
    }
    size_t last = at_;
    while (last < end && tokens_.kinds[last] == kind) ++last;
    const bool is_picture = kind == TokenKind::kPicture;
    size_t& which = is_picture ? picture_ : video_;
    const std::span<const MediaGrid> given = is_picture ? tokens_.pictures : tokens_.videos;
    if (which == given.size())
      fail("token {} is of {} {}, but only {} are given", at_, name_of(kind), which, given.size());
    MediaGrid grid = checked(given[which], kind, which);
    const bool apart = !is_picture && rules_.frames_apart;
    const int64_t frames = apart ? 1 : grid.frames, found = static_cast<int64_t>(last - at_);
    if (found != frames * grid.rows * grid.columns)
      fail("tokens {} to {} are {} of {} {}{}, whose grid makes {} x {} x {} = {}", at_, last, found,
           name_of(kind), which, apart ? fmt::format(", frame {}", frame_) : "", frames, grid.rows,
           grid.columns, frames * grid.rows * grid.columns);
    put_grid(grid, frames);
    if (apart && ++frame_ < grid.frames) return;
    frame_ = 0;
    ++which;
  }

  // In tokens.
  MediaGrid checked(MediaGrid grid, TokenKind kind, size_t which) const {
    const int64_t merge = rules_.merge;
    if (grid.frames < 1 || grid.rows < merge || grid.columns < merge || grid.rows % merge != 0 ||
        grid.columns % merge != 0 || (kind == TokenKind::kPicture && grid.frames != 1))
      fail("{} {} has a grid of {} x {} x {} patches, needs {} frame{} and sides that are multiples of {}",
           name_of(kind), which, grid.frames, grid.rows, grid.columns,
           kind == TokenKind::kPicture ? "1" : "at least 1", kind == TokenKind::kPicture ? "" : "s", merge);
    if (!(grid.seconds_per_frame >= 0 && grid.seconds_per_frame <= 86400))
      fail("{} {} has {} seconds between its frames, needs 0 to 86400", name_of(kind), which,
           grid.seconds_per_frame);
    grid.rows /= merge;
    grid.columns /= merge;
    return grid;
  }

  void put_grid(const MediaGrid& grid, int64_t frames) {
    const int64_t first = next_;
    for (int64_t frame = 0; frame < frames; ++frame)
      for (int64_t row = 0; row < grid.rows; ++row)
        for (int64_t column = 0; column < grid.columns; ++column)
          put(first + time_of(frame, grid.seconds_per_frame), first + row, first + column);
    const bool behind_highest =
        frames > 1 && (rules_.video == VideoRule::kQwen || rules_.video == VideoRule::kV457);
    next_ = first + std::max(grid.rows, grid.columns);
    if (behind_highest) next_ = std::max(next_, first + time_of(frames - 1, grid.seconds_per_frame) + 1);
  }

  int64_t time_of(int64_t frame, double seconds) const {
    if (rules_.tokens_per_second == 0) return frame;
    const bool whole = rules_.video == VideoRule::kV457 || rules_.video == VideoRule::kV517;
    return static_cast<int64_t>(std::floor(static_cast<double>(frame) * rules_.tokens_per_second *
                                           (whole ? std::trunc(seconds) : seconds)));
  }

  void put(int64_t time, int64_t height, int64_t width) {
    const int64_t tokens = all_.dim(1), most = std::max({time, height, width});
    if (most > INT32_MAX) fail("token {} is at position {}, beyond {}", at_, most, INT32_MAX);
    int32_t* to = all_.data<int32_t>() + at_++;
    for (const int64_t position : {time, height, width}) {
      *to = static_cast<int32_t>(position);
      to += tokens;
    }
    highest_ = std::max(highest_, most);
  }

  const MediaTokens& tokens_;
  const MediaPositionRules& rules_;
  Tensor all_;  // [3, tokens]
  MediaPositions result_;
  size_t at_ = 0, picture_ = 0, video_ = 0;
  int64_t frame_ = 0;  // of a video whose frames are apart: those that were there
  int64_t next_ = 0, highest_ = -1;
};

}  // namespace

VideoRule video_rule(const std::string& name) {
  const auto found = std::find(kRuleNames.begin(), kRuleNames.end(), name);
  if (found == kRuleNames.end())
    fail("the rule for positions of videos is '{}', expected one of [{}]", name,
         join({kRuleNames.begin(), kRuleNames.end()}));
  return static_cast<VideoRule>(found - kRuleNames.begin());
}

MediaPositions media_positions(const MediaTokens& tokens, const MediaPositionRules& rules) {
  return Counter(tokens, rules).count();
}

}  // namespace temper::data
