#pragma once
#include <span>
#include <vector>

#include "layers/placed_rows.h"

namespace temper::layers {

// Tokens of one or more documents, one after the other; on the CPU, the decoder brings them where they are
// needed. Where context ranks compute them together, all of them give all tokens.
struct DecoderInput {
  Tensor ids;  // [tokens] int32
  // [1 or 4, tokens] int32. The first row is a token's place in its document, rising from 0, which rotates
  // it. With four rows the others do instead: its time, height and width (data/rows/media_positions.h), for
  // models whose rotary has sections.
  Tensor positions;
  Tensor cu_seqlens;  // [documents + 1] int32
  // Of each document: the one before it that it continues, whose tokens it sees as if they were its own
  // beginning, or -1. Several may continue one, which is then computed once, and which continues none itself.
  // Empty: none does.
  std::vector<int32_t> continued = {};
  // Of the tokens of each adapter, or of all: how many come first that are no padding, which routers do not
  // count. [adapters] int32; undefined: all of them.
  Tensor counted = {};
  // The tokens that this rank computes, where context ranks (ModelRanks) divide them.
  TokenCut cut = {};
  PlacedRows placed = {};  // of pictures; none: all tokens are text
};

// Of positions as above: [tokens], or [3, tokens]. Views.
Tensor rotary_positions(const Tensor& positions);

// `media_positions`: times, heights and widths, [3, tokens] int32; undefined: tokens have one position.
DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                        std::vector<int32_t> continued = {}, const Tensor& media_positions = {});

// An Error where positions and cu_seqlens say different documents: each begins at 0, or behind the document
// that it continues, and rises (positions may be left out). And where there are neither 1 nor 4 rows of them,
// or a time, height or width is negative.
void check_boundaries(const DecoderInput& input);

// An Error where an id is outside the vocabulary: before ids travel to a device, where no kernel checks them.
void check_ids(std::span<const int32_t> ids, int64_t vocab_size);

}  // namespace temper::layers
