#include "parallel/replicas.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/hosts.h"

namespace temper::parallel {
namespace {

constexpr int64_t kMostElements = 1 << 16;  // of a tensor, each time

// What a rank holds that others may hold, too: a part of a tensor, or rows of it.
struct Held {
  uint64_t tensor = 0;              // its name's hash
  uint64_t rows = 0;                // which: a hash of the slices, or of rows that are shared alone the first
  int64_t column = 0, element = 0;  // where it begins; -1 of rows that are shared alone
  uint64_t hash = 0;

  auto what() const { return std::tuple(tensor, rows, column, element); }
};

// Of a tensor's elements in a row those that have their turn.
uint64_t hash_of(const Tensor& row, int64_t update) {
  const int64_t count = std::min(row.numel(), kMostElements);
  if (count == 0) return 0;
  // By a hash: updates that are compared lie at even distances, which may share a factor with the windows.
  const auto windows = static_cast<uint64_t>((row.numel() + count - 1) / count);
  const auto window =
      static_cast<int64_t>(hash64({reinterpret_cast<const char*>(&update), sizeof update}) % windows);
  const Tensor seen =
      row.narrow(0, std::min(window * count, row.numel() - count), count).on({}, MemoryTag::kWorkspace);
  return hash64({static_cast<const char*>(seen.raw()), static_cast<size_t>(seen.bytes())});
}

uint64_t hash_of(const std::vector<Slice>& rows) {
  return hash64({reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Slice)});
}

std::vector<Held> held_by_this_rank(const std::vector<PlacedTensor>& all, int64_t update) {
  std::vector<Held> found;
  for (const auto& [name, own, placed] : all) {
    const Placement& placement = *placed;
    if (!placement.is_here()) continue;
    const Placement::Part part = placement.held();
    const uint64_t tensor = hash64(name);
    const Tensor row = own.contiguous(MemoryTag::kWorkspace).reshape({own.numel()});
    found.push_back(
        {tensor, hash_of(part.rows), part.columns.whole, placement.first_element(), hash_of(row, update)});
    if (placement.is_flat() || !placement.is_cut_by_tensor()) continue;
    // Heads of keys that neighbours share.
    const int64_t wide = placement.whole().numel() / placement.whole()[0];
    for (const Placement::Shared& shared : placement.shared_by_tensor())
      for (const Slice& slice : part.rows)
        if (slice.own * wide == shared.first)
          found.push_back({tensor, static_cast<uint64_t>(slice.whole), -1, -1,
                           hash_of(row.narrow(0, shared.first, shared.count), update)});
  }
  return found;
}

std::string_view name_of(const std::vector<PlacedTensor>& held, uint64_t tensor) {
  for (const PlacedTensor& each : held)
    if (hash64(each.name) == tensor) return each.name;
  return "a tensor of another stage";
}

}  // namespace

void check_replicas(collectives::Group& ranks, const std::vector<PlacedTensor>& held, int64_t update) {
  if (ranks.is_alone()) return;
  const std::vector<Held> own = held_by_this_rank(held, update);
  const std::vector<std::vector<Held>> all = ranks.gather("hashes of replicas", std::span<const Held>(own));
  std::map<decltype(Held().what()), std::pair<size_t, uint64_t>> first;  // the first rank, and its hash
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const Held& one : all[rank]) {
      const auto [known, is_new] = first.try_emplace(one.what(), rank, one.hash);
      if (is_new || known->second.second == one.hash) continue;
      throw Error(fmt::format("[ranks] ranks {} and {} hold other bits of '{}' after update {}, which must "
                              "be the same; nothing "
                              "of this update is saved: resume from the newest checkpoint, with "
                              "parallel.check true, and report "
                              "this with the run's config.yaml",
                              collectives::with_host(ranks, static_cast<int>(known->second.first)),
                              collectives::with_host(ranks, static_cast<int>(rank)),
                              name_of(held, one.tensor), update),
                  ErrorKind::kDefect);
    }
}

}  // namespace temper::parallel
