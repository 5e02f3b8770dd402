#include "cli/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/home.h"
#include "base/text.h"
#include "checkpoints/weights_sample.h"

namespace temper::cli {
namespace {

struct Given {
  std::string name, folder;
};

// An adapter of ours lies in NAME/adapter: that is what it is called.
std::string name_of(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string last = file_name(folder), above = file_name(parent_path(folder));
  return last == "adapter" && !above.empty() ? above : last;
}

Given parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && !is_directory(text))
    return {text.substr(0, equals), expand_home(text.substr(equals + 1))};  // no shell does it there
  const std::string folder = expand_home(text);
  return {text == Adapters::kNone ? text : name_of(folder), folder};
}

}  // namespace

Adapters::Adapters(const models::Model& model, const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    const auto [name, folder] = parse(text);
    const bool taken = std::any_of(all_.begin(), all_.end(), [&](const Named& a) { return a.name == name; });
    if (name.empty() || taken)
      fail("[--adapter] {}; give it another: NAME={}",
           taken ? fmt::format("two adapters are called '{}'", name) : "an adapter has no name", folder);
    Named& added = all_.emplace_back(Named{name, nullptr, folder == kAwaited});
    if (text == kNone || added.awaited) continue;
    added.adapter = models::load_adapter(model, folder);
    added.weights = checkpoints::sample_of_weights(folder);
  }
  if (all_.empty()) all_.push_back({kNone, nullptr});
}

const layers::Adapter* Adapters::find(const std::string& name) const {
  for (const Named& named : all_)
    if (named.name == name) return named.adapter.get();
  if (name == kNone) return nullptr;
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
