#include "backends/hopper/attention/attention_items.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace temper::backends::hopper {
namespace {

void add_items(Schedule& schedule, int document, int kv_heads) {
  const hopper::Document& d = schedule.documents[static_cast<size_t>(document)];
  const int blocks = (d.keys + hopper::kBlock - 1) / hopper::kBlock;
  for (int head = 0; head < kv_heads; ++head) {
    if (d.paired != 0)
      for (int i = 0; i < (blocks + 1) / 2; ++i)
        schedule.items.push_back({document, head, i, blocks - 1 - i > i ? blocks - 1 - i : -1});
    else
      for (int block = blocks - 1; block >= 0; --block) schedule.items.push_back({document, head, block, -1});
  }
}

}  // namespace

Schedule schedule_of(const Packing& packing, bool window, int at_once) {
  const ops::Attention op = op_of(packing);
  const int heads = static_cast<int>(packing.heads),
            tile = hopper::tile_of(static_cast<int>(packing.head_dim));
  const std::vector<PackedDocument> documents = packed_documents(op);
  const bool plain = common_length(documents, op) > 0;
  Schedule schedule;
  int64_t seen = 0;
  for (const PackedDocument& d : documents) {
    const auto query = static_cast<int>(d.query), queries = static_cast<int>(d.queries),
               keys = static_cast<int>(d.keys);
    const bool paired =
        keys == queries && !window && (keys + 2 * hopper::kBlock - 1) / (2 * hopper::kBlock) <= at_once;
    const auto first_tile = static_cast<int>(schedule.rows.size());
    schedule.documents.push_back({query, queries, static_cast<int>(d.key), keys, first_tile, paired});
    for (int first = 0; first < queries; first += tile) {
      // Logs of a plain batch are [documents, heads, length], of ragged documents [tokens, heads].
      const int log = plain ? query * heads + first : (query + first) * heads;
      schedule.rows.push_back({query + first, std::min(tile, queries - first), log});
    }
    seen += d.keys;
  }
  schedule.whole = seen == op.starts_k().back();
  // The longest first, so that the last to finish are short.
  std::vector<int> order(documents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return documents[static_cast<size_t>(a)].keys > documents[static_cast<size_t>(b)].keys;
  });
  for (const int document : order) add_items(schedule, document, static_cast<int>(packing.kv_heads));
  if (schedule.items.empty()) return schedule;
  schedule.items.resize(std::bit_ceil(schedule.items.size()), {-1, 0, 0, -1});
  const auto most = static_cast<size_t>(op.starts_q().back() / tile) + op.starts_q().size() - 1;
  schedule.rows.resize(most, {0, 0, 0});
  return schedule;
}

}  // namespace temper::backends::hopper
