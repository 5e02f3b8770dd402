#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "base/json/json.h"
#include "data/rows/pack.h"
#include "losses/top_tokens.h"

namespace temper::recipes {

constexpr const char* kLogitsIndex = "teacher_logits.json";

// A document of packed rows, as stored logits know it.
struct StoredDocument {
  uint64_t hash = 0;  // of its tokens and targets
  int64_t targets = 0;
};
std::vector<StoredDocument> documents_of(const data::PackedRow& row);

// Writes a folder of logits, in files of about 256 MiB; the index comes last, so that a folder without it is
// not whole.
class LogitsWriter {
 public:
  // Logits are stored in the teacher's dtype, which they were rounded to.
  LogitsWriter(std::string folder, int64_t top_k, DType dtype);
  // Tokens of all documents of the row, in their order, from `first`; returns where the next row's begin.
  int64_t add(const data::PackedRow& row, const losses::TopTokens& tokens, int64_t first);
  // `made_from`: what a reader compares.
  void close(const Json& made_from);
  int64_t num_tokens() const { return all_tokens_; }

 private:
  void flush();

  std::string folder_;
  int64_t top_k_, all_tokens_ = 0;
  DType dtype_;
  std::unordered_set<uint64_t> written_;
  std::vector<int64_t> documents_, starts_{0};  // of the next file
  std::vector<int32_t> ids_;
  std::vector<float> logits_, rest_;
  Json::Array files_;
};

}  // namespace temper::recipes
