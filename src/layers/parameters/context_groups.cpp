#include "layers/parameters/context_groups.h"

#include "tensor/shape.h"

namespace temper::layers {

std::unique_ptr<collectives::Group> ContextGroups::part(const char* name, int first, int step,
                                                        int count) const {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks_.part(name, ranks);
}

ContextParts ContextGroups::parts(int members) {
  const int groups = static_cast<int>(div_exact(ranks_.size(), members));
  if (groups == 1) return {members, &ranks_, nullptr};
  if (members == 1) return {1, nullptr, &ranks_};
  const auto [found, is_new] = made_.try_emplace(members);
  if (is_new) {
    const int place = ranks_.rank() % members;
    found->second = {part("context heads", ranks_.rank() - place, 1, members),
                     part("context keys", place, members, groups)};
  }
  return {members, found->second.heads.get(), found->second.keys.get()};
}

std::vector<collectives::Group*> ContextGroups::made() const {
  std::vector<collectives::Group*> all;
  for (const auto& [members, groups] : made_) {
    all.push_back(groups.heads.get());
    all.push_back(groups.keys.get());
  }
  return all;
}

}  // namespace temper::layers
