#pragma once
#include <memory>
#include <optional>

#include "layers/adapted_rows.h"
#include "layers/context_keys.h"
#include "layers/context_spans.h"
#include "layers/token_ranks.h"

namespace temper::layers {

// What a mixer reads of the other context ranks in one pass, which have the other tokens. Ranks that follow
// one another exchange heads for tokens, all or groups of them; each then has some heads of its group's
// tokens. Of several groups the ranks with the same heads give each other the keys and values of all tokens,
// and compute with the queries of their group: one product over all keys of a query, so that no partial
// results have to be put together. Both together are "unified sequence parallelism" (Fang and Zhao, "USP",
// 2024, arXiv:2405.07719). Mixers that carry a state from token to token may pass states on instead, of any
// tokens.
struct ContextPass {
  TokenRanks all;    // the context ranks
  TokenRanks heads;  // that exchange heads; alone: none do
  TokenRanks keys;   // that give each other keys; alone: none do
  AdaptedRows rows;  // whose all tokens of the pass are
  // As the queries of the rank's group see them; null: the group has all tokens.
  std::shared_ptr<const ContextDocuments> documents = {};
  std::optional<ContextSpans> spans = {};  // none: heads travel, also where mixers carry states
};

}  // namespace temper::layers
