#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::tokenizers {

// Ids and spellings, both of the model's vocabulary and of the added tokens.
class Vocabulary {
 public:
  using Entries = std::vector<std::pair<std::string, int32_t>>;
  using BytesOf = std::function<std::string(std::string_view)>;  // the bytes of a spelling
  // Added tokens may repeat tokens of the model with the same id. Errors start with `where`.
  Vocabulary(Entries model, Entries added, const BytesOf& bytes_of, std::string_view where);
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
  void add(Entries& entries, bool to_model, const BytesOf& bytes_of, std::string_view where);
  std::vector<bool> in_model_;
  std::vector<std::string> spellings_;
  std::vector<std::string> bytes_;
  std::vector<uint32_t> num_bytes_;  // in one place, as every token of a text asks

  // By spelling, with open addressing: merges of a large file ask half a million times.
  struct Slot {
    uint32_t hash = 0;
    int32_t id = kFree;
  };
  static constexpr int32_t kFree = -1;
  size_t slot_of(std::string_view spelling, uint32_t hash) const;
  std::vector<Slot> slots_;
};

}  // namespace temper::tokenizers
