#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace temper::tokenizers {

// Ids and spellings, both of the model's vocabulary and of the added tokens. A spelling writes one
// printable character per byte (byte_level.h).
class Vocabulary {
 public:
  using Entries = std::vector<std::pair<std::string, int32_t>>;
  // Added tokens may repeat tokens of the model with the same id. Errors start with `where`.
  Vocabulary(Entries model, Entries added, std::string_view where);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(spellings_.size()); }  // largest id + 1
  std::optional<int32_t> find(std::string_view spelling) const;
  bool has(int32_t id) const {
    return id >= 0 && id < size() && !spellings_[static_cast<size_t>(id)].empty();
  }
  bool in_model(int32_t id) const { return in_model_[static_cast<size_t>(id)]; }
  const std::string& spelling(int32_t id) const { return spellings_[static_cast<size_t>(id)]; }
  std::string_view bytes(int32_t id) const;  // "" for an id without a token
  size_t num_bytes(int32_t id) const { return num_bytes_[static_cast<size_t>(id)]; }  // of a token

 private:
  void add(Entries& entries, bool to_model, std::string_view where);
  std::vector<bool> in_model_;
  std::vector<std::string> spellings_;  // never resized: ids_ points into it
  std::vector<std::string> bytes_;
  std::vector<uint32_t> num_bytes_;  // in one place, as every token of a text asks
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace temper::tokenizers
