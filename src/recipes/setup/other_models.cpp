#include "recipes/setup/other_models.h"

#include "base/files.h"
#include "models/folder_config.h"
#include "recipes/plans/pipeline_checks.h"

namespace temper::recipes {

std::shared_ptr<const models::Model> OtherModels::frozen(const std::string& folder) const {
  if (auto known = frozen_[folder].lock()) return known;
  models::BuildOptions build = build_options(config_, facts_, preferred_);
  const std::string file = join_path(folder, "config.json");
  build.ranks =
      model_ranks(groups_, models::configure(models::config_of_folder(folder), file), config_, facts_.device);
  build.quantize = {};  // it computes with its weights as they are
  const std::shared_ptr<const models::Model> other = models::load_model(folder, build);
  frozen_[folder] = other;
  return other;
}

std::shared_ptr<DividedModel> OtherModels::divided(collectives::Group& ranks, const Mesh& mesh) const {
  std::weak_ptr<DividedModel>& known = divided_[to_string(mesh)];
  if (auto made = known.lock()) return made;
  auto made = std::make_shared<DividedModel>(DividedModel{parallel::MeshGroups(ranks, mesh), nullptr});
  models::BuildOptions build = build_options(config_, facts_, preferred_);
  build.ranks = made->groups.model();
  made->model = models::build_model(model_config_, join_path(config_.model.path, "config.json"), build);
  known = made;
  return made;
}

std::unique_ptr<models::Model> OtherModels::trainable(const std::string& folder, bool gives_values) const {
  models::BuildOptions build = own_build_options(config_, facts_, preferred_);
  layers::DecoderConfig architecture =
      models::configure(models::config_of_folder(folder), join_path(folder, "config.json"));
  architecture.gives_values = gives_values;
  build.ranks = model_ranks(groups_, architecture, config_, facts_.device);
  build.gives_values = gives_values;
  return models::load_model(folder, build);
}

}  // namespace temper::recipes
