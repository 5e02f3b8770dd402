#include "recipes/mesh.h"

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace temper::recipes {
namespace {

constexpr int kAuto = 0;

int degree(std::string_view key, const std::string& text) {
  if (text == "auto") return kAuto;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    fail("[parallel.{}] is '{}'; expected a number of ranks, at least 1, or auto", key, text);
  return value;
}

// Meshes of that many ranks, the likeliest first.
std::string proposals(int ranks) {
  std::vector<std::string> all;
  for (const int shard : {1, ranks, 2})
    if (ranks % shard == 0 && all.size() < static_cast<size_t>(ranks))
      all.push_back(fmt::format("{{replicate: {}, shard: {}}}", ranks / shard, shard));
  return join(all);
}

}  // namespace

Mesh mesh_of(const ParallelConfig& config, int ranks) {
  int replicate = degree("replicate", config.replicate), shard = degree("shard", config.shard);
  // What is left goes to the shards where they want it.
  if (replicate == kAuto && shard == kAuto) replicate = 1;
  const int known = std::max(replicate, 1) * std::max(shard, 1);
  if (replicate == kAuto && ranks % known == 0) replicate = ranks / known;
  if (shard == kAuto && ranks % known == 0) shard = ranks / known;
  if (replicate * shard != ranks)
    fail("[parallel] replicate {} and shard {} make {} ranks, but there {}; possible are {}",
         config.replicate, config.shard, known, ranks == 1 ? "is 1" : fmt::format("are {}", ranks),
         proposals(ranks));
  return {replicate, shard, 1};
}

}  // namespace temper::recipes
