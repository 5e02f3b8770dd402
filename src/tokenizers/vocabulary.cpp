#include "tokenizers/vocabulary.h"

#include <algorithm>

#include "base/error.h"

namespace temper::tokenizers {

// Guards against an id that would make the tables exhaust the memory.
constexpr int32_t kMaxId = 1 << 22;

Vocabulary::Vocabulary(Entries model, Entries added, const BytesOf& bytes_of, std::string_view where) {
  int32_t largest = -1;
  for (const Entries* entries : {&model, &added})
    for (const auto& [spelling, id] : *entries) {
      if (id < 0 || id > kMaxId)
        fail("[{}] token '{}' has id {}, expected 0 to {}", where, spelling, id, kMaxId);
      if (spelling.empty()) fail("[{}] the token with id {} is empty", where, id);
      largest = std::max(largest, id);
    }
  spellings_.resize(static_cast<size_t>(largest) + 1);
  bytes_.resize(spellings_.size());
  in_model_.resize(spellings_.size());
  ids_.reserve(model.size() + added.size());
  add(model, true, bytes_of, where);
  add(added, false, bytes_of, where);
}

void Vocabulary::add(Entries& entries, bool to_model, const BytesOf& bytes_of, std::string_view where) {
  for (auto& [spelling, id] : entries) {
    std::string& slot = spellings_[static_cast<size_t>(id)];
    if (!to_model && slot == spelling) continue;
    if (!slot.empty()) fail("[{}] tokens '{}' and '{}' both have id {}", where, slot, spelling, id);
    slot = std::move(spelling);
    bytes_[static_cast<size_t>(id)] = bytes_of(slot);
    in_model_[static_cast<size_t>(id)] = to_model;
    const auto [other, fresh] = ids_.emplace(slot, id);
    if (!fresh) fail("[{}] token '{}' has two ids, {} and {}", where, slot, other->second, id);
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view Vocabulary::bytes(int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
}

}  // namespace temper::tokenizers
