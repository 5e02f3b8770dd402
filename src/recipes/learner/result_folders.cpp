#include "recipes/learner/result_folders.h"

#include "base/log.h"
#include "base/text.h"
#include "checkpoints/states/placed_tensors.h"
#include "checkpoints/stop_tokens.h"
#include "models/adapter.h"
#include "recipes/parts/critic.h"

namespace temper::recipes {
namespace {

// `adapter` may be null: the model. `base`: the folder that it was made from.
void save_weights(const models::Model& model, const layers::Adapter* adapter, const std::string& folder,
                  const std::string& base, const TrainedModel::Whole& whole) {
  if (adapter != nullptr)
    models::save_adapter(*adapter, folder, base, whole);
  else
    models::save_model(model, folder, base, whole);
}

}  // namespace

void ResultFolders::save(const std::string& folder, const TrainedModel::Whole& whole) const {
  save_weights(*inputs_.setup.model, trained_.adapter(), folder, inputs_.config.model.path, whole);
  if (ending_) {
    std::vector<int32_t> stops = inputs_.setup.text.generation.stop_ids;
    stops.push_back(*ending_);
    checkpoints::add_stop_tokens(folder, stops);
  }
  if (!inputs_.config.data.chat_template.empty()) keep_template(folder);
}

// The result is of use with the template that it was trained with, and no other for rows with tools.
void ResultFolders::keep_template(const std::string& folder) const {
  write_file(join_path(folder, "chat_template.jinja"), inputs_.setup.text.chat->text);
  const std::string tool_use = join_path(folder, templates::kToolUseFile);
  if (!exists(tool_use)) return;
  remove_all(tool_use);
  log_info(
      fmt::format("[{}] the model's chat template for tools is left out, as all rows took that of "
                  "data.chat_template",
                  folder));
}

void ResultFolders::save_best() const {
  trained_.with_whole(
      [&](const collectives::Root&, const TrainedModel::Whole& whole) { save(inputs_.files.best(), whole); });
}

void ResultFolders::save_critic(const Critic& critic) const {
  const std::string base = inputs_.recipe().critic(inputs_.config)->folder;
  checkpoints::with_whole(inputs_.ranks(), critic.trained().placed(),
                          [&](const collectives::Root&, const TrainedModel::Whole& whole) {
                            save_weights(critic.model(), critic.adapter(), inputs_.files.critic(), base,
                                         whole);
                          });
}

}  // namespace temper::recipes
