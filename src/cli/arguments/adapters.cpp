#include "cli/arguments/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/home.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/stop_tokens.h"
#include "checkpoints/weights_sample.h"
#include "models/folder_config.h"

namespace temper::cli {
namespace {

// An adapter of ours lies in NAME/adapter: that is what it is called.
std::string name_of(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string last = file_name(folder), above = file_name(parent_path(folder));
  return last == "adapter" && !above.empty() ? above : last;
}

Adapters::Given parse_one(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && !is_directory(text))
    return {text.substr(0, equals),
            checkpoints::find_adapter(expand_home(text.substr(equals + 1)))};  // no shell does it there
  const std::string folder = checkpoints::find_adapter(expand_home(text));
  return {text == Adapters::kNone ? text : name_of(folder), folder};
}

}  // namespace

std::vector<Adapters::Given> Adapters::parse(const std::vector<std::string>& given) {
  std::vector<Given> all;
  for (const std::string& text : given) {
    const auto [name, folder] = parse_one(text);
    const bool taken = std::any_of(all.begin(), all.end(), [&](const Given& a) { return a.name == name; });
    if (name.empty() || taken)
      fail("[--adapter] {}; give it another: NAME={}",
           taken ? fmt::format("two adapters are called '{}'", name) : "an adapter has no name", folder);
    all.push_back({name, text == kNone ? "" : folder});
  }
  return all;
}

void Adapters::check(const std::string& model_folder, const std::vector<std::string>& given) {
  if (given.empty() || !is_directory(model_folder)) return;
  const WeightTable table = layers::decoder_weight_table(
      models::configure(models::config_of_folder(model_folder), join_path(model_folder, "config.json")));
  for (const auto& [name, folder] : parse(given))
    if (!folder.empty() && folder != kAwaited) models::check_adapter(table, folder);
}

Adapters::Adapters(const models::Model& model, const std::vector<std::string>& given) {
  for (const auto& [name, folder] : parse(given)) {
    Named& added = all_.emplace_back(Named{name, nullptr, folder == kAwaited});
    if (folder.empty() || added.awaited) continue;
    added.adapter = models::load_adapter(model, folder);
    added.weights = checkpoints::sample_of_weights(folder);
    added.stop_ids = checkpoints::stop_tokens_of(folder);
  }
  if (all_.empty()) all_.push_back({kNone, nullptr});
}

rollout::Request Adapters::Named::apply(rollout::Request request) const {
  request.adapter = adapter.get();
  request.stop_ids.insert(request.stop_ids.end(), stop_ids.begin(), stop_ids.end());
  return request;
}

const Adapters::Named& Adapters::find(const std::string& name) const {
  for (const Named& named : all_)
    if (named.name == name) return named;
  if (name == kNone) return none_;
  fail("no adapter is called '{}'; there are {}", name, names());
}

Adapters::Named& Adapters::named(const std::string& name) {
  for (Named& named : all_)
    if (named.name == name && name != kNone) return named;
  fail("[weights] adapter '{}' is not awaited here; start with --adapter {}=- (there are {})", name, name,
       names());
}

std::string Adapters::names() const {
  std::vector<std::string> names;
  for (const Named& named : all_)
    if (named.adapter || named.awaited) names.push_back(named.name);
  names.emplace_back(kNone);
  return join(names);
}

}  // namespace temper::cli
