#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace temper::data {

// What a token represents; the numbers are those of transformers' mm_token_type_ids.
enum class TokenKind : uint8_t { kText, kPicture, kVideo };

// Of a picture (frames: 1) or a video: sizes in patches, as grid_thw of processors has them.
struct MediaGrid {
  int64_t frames = 1, rows = 0, columns = 0;
  double seconds_per_frame = 1;  // between the frames of the grid, of a video: second_per_grid_ts
};

// Four rules are in use for the times of a video's frames, and for the position of the text behind it:
//
//   rule    time of frame g, from the first           text behind it
//   qwen    floor(g · tokens_per_second · seconds)    highest position + 1
//   v4_57   g · tokens_per_second · int(seconds)      highest position + 1
//   v5_17   g · tokens_per_second · int(seconds)      first position + the longer side
//   v5_24   floor(g · tokens_per_second · seconds)    first position + the longer side
//
// The first is that of the models' own training, the others are those of transformers 4.57, 5.17 and 5.24.
// They agree on pictures, and on videos that Qwen3-VL and Qwen3.5 cut into frames.
enum class VideoRule : uint8_t { kQwen, kV457, kV517, kV524 };
VideoRule video_rule(const std::string& name);  // "qwen", "v4_57", "v5_17" or "v5_24"; an Error for others

// What a family says.
struct MediaPositionRules {
  VideoRule video = VideoRule::kQwen;
  double tokens_per_second = 0;  // Qwen2.5-VL; 0: a frame is one position behind the one before (Qwen2-VL)
  int64_t merge = 2;             // patches of a token, in either direction
  bool frames_apart = false;  // text is between the frames of a video, which are as pictures (Qwen3-VL, 3.5)
};

struct MediaPositions {
  Tensor positions;  // [3, tokens] int32: time, height and width, from 0 in each document
  // Of each document: where text behind its last token stands, by the rule, and where decoding continues,
  // which is behind the highest of all its positions. They differ only behind videos by v5_17 and v5_24.
  std::vector<int32_t> text_next, decoding_next;
};

// The tokens of a pass: those of the documents, one after the other.
struct MediaTokens {
  std::span<const TokenKind> kinds;
  std::span<const int32_t> document_lengths;
  std::span<const MediaGrid> pictures, videos;  // in the order of their tokens
  std::span<const int32_t> continued = {};      // as layers::make_input has it; empty: no document does
};

// Positions of multimodal rotary (Qwen2-VL, arXiv:2409.12191, section 2.1): text counts on in all three;
// tokens of a picture that begins at s stand at time s, height s + row and width s + column; text continues
// behind the longer side. An Error where tokens and grids contradict each other: it names the token, or the
// grid.
MediaPositions media_positions(const MediaTokens& tokens, const MediaPositionRules& rules);

}  // namespace temper::data
