#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoints/files/safetensors.h"
#include "recipes/setup/recipe_inputs.h"
#include "training/objectives/target_logits.h"

namespace temper::recipes {

// A teacher's largest logits at the target tokens of a run's rows, in a folder (docs/distillation.md):
// computed before the first step where the folder has none, and read otherwise, without a teacher. A document
// is found by a hash of its tokens and targets, so that neither order nor packing nor ranks matter.
class StoredLogits : public training::KnownTokens {
 public:
  // Whose logits are to be stored, without its adapters and quantizers.
  using MakeTeacher = std::function<std::shared_ptr<const layers::Decoder>()>;

  // Whether the folder of a run has logits, all of them. An Error for a folder of something else.
  static bool are_in(const std::string& folder);
  // All ranks call it. Errors name what the stored ones were made otherwise from: the tokenizer, the
  // vocabulary, the teacher, distill.top_k, distill.temperature; and a row of the run's data that they lack.
  static std::shared_ptr<const StoredLogits> open_or_compute(const ObjectiveInputs& inputs,
                                                             const MakeTeacher& make_teacher);

  losses::TopTokens of(std::span<const data::PackedRow> rows) const override;

 private:
  struct Place {
    size_t file = 0;
    int64_t first = 0, count = 0;  // of the file's tokens
  };
  // Each document's target tokens, one after another.
  struct File {
    Tensor ids, logits, rest;  // [tokens, K], [tokens, K], [tokens]
  };

  StoredLogits(std::string folder, int64_t top_k) : folder_(std::move(folder)), top_k_(top_k) {}
  void read(const Json& index);
  const Place& find(uint64_t document, int64_t targets) const;
  void check_rows(const ObjectiveInputs& inputs) const;

  std::string folder_;
  int64_t top_k_;
  std::vector<File> files_;
  std::unordered_map<uint64_t, Place> documents_;
};

}  // namespace temper::recipes
