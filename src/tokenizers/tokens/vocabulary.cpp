#include "tokenizers/tokens/vocabulary.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace temper::tokenizers {

// Guards against an id that would make the tables exhaust the memory.
constexpr int32_t kMaxId = 1 << 22;

namespace {

uint32_t hash_of(std::string_view spelling) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(spelling));
}

}  // namespace

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
  num_bytes_.resize(spellings_.size());
  in_model_.resize(spellings_.size());
  size_t slots = 16;
  while (slots < 2 * (model.size() + added.size())) slots *= 2;
  slots_.resize(slots);
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
    num_bytes_[static_cast<size_t>(id)] = static_cast<uint32_t>(bytes_[static_cast<size_t>(id)].size());
    in_model_[static_cast<size_t>(id)] = to_model;
    const uint32_t hash = hash_of(slot);
    Slot& place = slots_[slot_of(slot, hash)];
    if (place.id != kFree) fail("[{}] token '{}' has two ids, {} and {}", where, slot, place.id, id);
    place = {hash, id};
  }
}

// The slot with this spelling, or the free one where it belongs.
size_t Vocabulary::slot_of(std::string_view spelling, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id != kFree &&
         (slots_[at].hash != hash || spellings_[static_cast<size_t>(slots_[at].id)] != spelling))
    at = (at + 1) & mask;
  return at;
}

std::optional<int32_t> Vocabulary::find(std::string_view spelling) const {
  const Slot& slot = slots_[slot_of(spelling, hash_of(spelling))];
  if (slot.id == kFree) return std::nullopt;
  return slot.id;
}

std::string_view Vocabulary::bytes(int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
}

}  // namespace temper::tokenizers
