#pragma once
#include <functional>
#include <string>
#include <unordered_map>

#include "recipes/setup/recipe_inputs.h"
#include "training/objectives/reference.h"

namespace temper::recipes {

// Log-probabilities of all documents of a run, computed once and kept in its folder: reference.safetensors,
// and reference.json with hashes of the data, the model, its tokenizer and template, and the options that
// rows are read with. A document is found by a hash of its tokens and answers.
class StoredReference : public training::Reference {
 public:
  using MakeModel = std::function<std::shared_ptr<const training::Reference>()>;
  // What the folder has, or else what the model says of every row of the run's data. `model_folder` is the
  // reference's. An Error names what has changed since the numbers were stored.
  static StoredReference open_or_compute(const ObjectiveInputs& inputs, const std::string& model_folder,
                                         const MakeModel& make_model);

  std::vector<double> logps(const std::vector<data::PackedRow>& rows) const override;
  double flops(std::span<const training::DocumentSpan>) const override { return 0; }

 private:
  explicit StoredReference(std::string file) : file_(std::move(file)) {}
  void compute(const ObjectiveInputs& inputs, const training::Reference& model);
  void write(const Json& origin) const;
  void read();

  std::string file_;                                         // reference.json
  std::unordered_map<uint64_t, std::vector<double>> logps_;  // of a document's answers
};

}  // namespace temper::recipes
