#include "recipes/preference/reference.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/hf_folder.h"
#include "recipes/preference/preference_keys.h"
#include "recipes/preference/stored_reference.h"

namespace temper::recipes {
namespace {

// A model that lives as long as it is compared with.
class SecondModel : public training::Reference {
 public:
  SecondModel(std::shared_ptr<const models::Model> model, int64_t micro_batch_tokens)
      : model_(std::move(model)), reference_(model_->decoder, micro_batch_tokens) {}
  std::vector<double> logps(const std::vector<data::PackedRow>& rows) const override {
    return reference_.logps(rows);
  }
  double flops(std::span<const training::DocumentSpan> documents) const override {
    return reference_.flops(documents);
  }

 private:
  std::shared_ptr<const models::Model> model_;
  training::ModelReference reference_;
};

layers::DecoderConfig architecture_of(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  return models::configure(Json::parse_file(file), file);
}

// The reference while its numbers are computed: the trained model itself before its first step, where it is
// that.
std::shared_ptr<const training::Reference> model_to_ask(const ObjectiveInputs& inputs) {
  const int64_t micro_batch = inputs.config.train.micro_batch_tokens;
  if (preference_keys(inputs.config).reference.empty())
    return std::make_shared<training::ModelReference>(inputs.setup.model->decoder, micro_batch);
  return std::make_shared<SecondModel>(inputs.setup.other_model(folder_of_reference(inputs.config)),
                                       micro_batch);
}

}  // namespace

ReferenceKind kind_of_reference(const RunConfig& config) {
  const PreferenceKeys& c = preference_keys(config);
  const bool base = !config.adapters.empty() && c.reference.empty(),
             kto = c.loss == PreferenceKeys::Loss::kKto;
  // A model that is trained in full moves away from what it is compared with.
  const bool stored = c.precompute.value_or(!base && c.reference.empty() && !kto);
  if (stored) return ReferenceKind::kStored;
  return base ? ReferenceKind::kBase : ReferenceKind::kSecondModel;
}

std::string folder_of_reference(const RunConfig& config) {
  const std::string& folder = preference_keys(config).reference;
  return folder.empty() ? config.model.path : folder;
}

void check_reference(const RunConfig& config) {
  const std::string& folder = preference_keys(config).reference;
  if (folder.empty()) return;
  if (!is_directory(folder))
    fail("[preference.reference] '{}' {}", folder, checkpoints::no_model_folder(folder));
  if (!exists(join_path(folder, "config.json")))
    fail(
        "[preference.reference] '{}' has no config.json; expected a model in Hugging Face format (merge an "
        "adapter into its base first)",
        folder);
  const layers::DecoderConfig own = architecture_of(config.model.path), other = architecture_of(folder);
  if (own.vocab_size != other.vocab_size)
    fail(
        "[preference.reference] '{}' has a vocabulary of {} tokens, the model has {}; a reference must read "
        "the "
        "same tokens: give an earlier checkpoint of the model",
        folder, other.vocab_size, own.vocab_size);
  if (other.max_positions < config.data.max_length)
    fail("[data.max_length] is {}, but max_position_embeddings of preference.reference, '{}', is {}",
         config.data.max_length, folder, other.max_positions);
  if (!exists(join_path(folder, "tokenizer.json"))) return;
  const auto tokens = tokenizers::Tokenizer::load(config.model.path),
             theirs = tokenizers::Tokenizer::load(folder);
  for (int32_t id = 0; id < std::max(tokens.vocab_size(), theirs.vocab_size()); ++id) {
    const auto spelled = [id](const tokenizers::Tokenizer& tokenizer) {
      return id < tokenizer.vocab_size() ? tokenizer.token_text(id) : std::string();
    };
    if (spelled(tokens) != spelled(theirs))
      fail(
          "[preference.reference] '{}' has another vocabulary: token {} is '{}' there and '{}' in the model; "
          "a "
          "reference must read the same tokens: give an earlier checkpoint of the model",
          folder, id, spelled(theirs), spelled(tokens));
  }
}

std::shared_ptr<const training::Reference> make_reference(const ObjectiveInputs& inputs) {
  const std::string folder = folder_of_reference(inputs.config);
  switch (kind_of_reference(inputs.config)) {
    case ReferenceKind::kBase:
      log_info("reference: the model without its adapter");
      break;
    case ReferenceKind::kSecondModel:
      log_info(fmt::format("reference: {}, a second model in memory", folder));
      return std::make_shared<SecondModel>(inputs.setup.other_model(folder),
                                           inputs.config.train.micro_batch_tokens);
    case ReferenceKind::kStored:
      return std::make_shared<StoredReference>(
          StoredReference::open_or_compute(inputs, folder, [&] { return model_to_ask(inputs); }));
  }
  return std::make_shared<training::ModelReference>(inputs.setup.model->decoder,
                                                    inputs.config.train.micro_batch_tokens);
}

}  // namespace temper::recipes
