#pragma once
#include <span>
#include <vector>

#include "layers/token_cut.h"

namespace temper::layers {

// Tokens of one or more documents, one after the other; on the CPU, the decoder brings them where they are
// needed. Where context ranks compute them together, all of them give all tokens.
struct DecoderInput {
  Tensor ids;  // [tokens] int32
  // [sections, tokens] int32: where a token stands, once for each section of the rotary frequencies. The
  // first section is its place in the document, rising from 0; models that read text alone have no other.
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
};
DecoderInput make_input(std::span<const int32_t> ids, std::span<const int32_t> document_lengths,
                        std::vector<int32_t> continued = {});

// An Error where positions and cu_seqlens say different documents: each begins at 0, or behind the document
// that it continues, and rises (positions may be left out).
void check_boundaries(const DecoderInput& input);

// An Error where an id is outside the vocabulary: before ids travel to a device, where no kernel checks them.
void check_ids(std::span<const int32_t> ids, int64_t vocab_size);

}  // namespace temper::layers
