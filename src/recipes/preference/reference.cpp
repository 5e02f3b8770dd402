#include "recipes/preference/reference.h"

#include "base/error.h"
#include "base/log.h"
#include "recipes/parts/second_model.h"
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

// The reference while its numbers are computed: the trained model itself before its first step, where it is
// that.
std::shared_ptr<const training::Reference> model_to_ask(const ObjectiveInputs& inputs) {
  const int64_t micro_batch = inputs.config.train.compute.micro_batch_tokens;
  if (preference_keys(inputs.config).reference.empty())
    return std::make_shared<training::ModelReference>(inputs.setup.model->decoder, micro_batch);
  return std::make_shared<SecondModel>(inputs.setup.others->frozen(folder_of_reference(inputs.config)),
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
  check_second_model(config, "preference.reference", preference_keys(config).reference, "a reference",
                     "give an earlier checkpoint of the model");
}

std::shared_ptr<const training::Reference> make_reference(const ObjectiveInputs& inputs) {
  const std::string folder = folder_of_reference(inputs.config);
  switch (kind_of_reference(inputs.config)) {
    case ReferenceKind::kBase:
      log_info("reference: the model without its adapter");
      break;
    case ReferenceKind::kSecondModel:
      log_info(fmt::format("reference: {}, a second model in memory", folder));
      return std::make_shared<SecondModel>(inputs.setup.others->frozen(folder),
                                           inputs.config.train.compute.micro_batch_tokens);
    case ReferenceKind::kStored:
      return std::make_shared<StoredReference>(
          StoredReference::open_or_compute(inputs, folder, [&] { return model_to_ask(inputs); }));
  }
  return std::make_shared<training::ModelReference>(inputs.setup.model->decoder,
                                                    inputs.config.train.compute.micro_batch_tokens);
}

}  // namespace temper::recipes
