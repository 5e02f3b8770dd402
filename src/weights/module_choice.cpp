#include "weights/module_choice.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/threads/per_thread.h"
#include "tokenizers/text/pattern.h"

namespace temper {
namespace {

tokenizers::Pattern whole(const std::string& regex, std::string_view where) {
  return tokenizers::Pattern::regex("\\A(?:" + regex + ")\\z", where);
}

// Compiled once: a mixture has thousands of modules that each expression is asked about.
bool matches_whole(std::string_view module, const std::string& regex) {
  constexpr size_t kMost = 64;  // expressions, far more than a configuration has
  static const PerThread<std::map<std::string, tokenizers::Pattern>> of_threads;
  auto& compiled = of_threads.get();
  auto found = compiled.find(regex);
  if (found == compiled.end()) {
    if (compiled.size() >= kMost) compiled.clear();
    found = compiled.emplace(regex, whole(regex, "[modules]")).first;
  }
  return found->second.find(module, 0).has_value();
}

// The last parts of the names, which is what people write.
std::vector<std::string> short_names(const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(module.substr(module.rfind('.') + 1));
  return {names.begin(), names.end()};
}

}  // namespace

bool is_module(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  return module.size() == name.size() || module[module.size() - name.size() - 1] == '.';
}

bool matches_module_pattern(std::string_view module, const std::string& pattern) {
  return matches_whole(module, "(?:.*\\.)?(?:" + pattern + ")");
}

bool ModuleChoice::contains(std::string_view module) const {
  const auto is = [&](const std::string& name) { return is_module(module, name); };
  return std::any_of(names.begin(), names.end(), is) || (!regex.empty() && matches_whole(module, regex));
}

void check_names(const std::vector<std::string>& names, const std::vector<std::string>& modules,
                 const std::vector<std::string>& proposed, std::string_view where) {
  for (const std::string& name : names) {
    const auto is = [&](const std::string& module) { return is_module(module, name); };
    if (std::any_of(modules.begin(), modules.end(), is)) continue;
    const std::vector<std::string> known = short_names(proposed);
    const std::string nearest = nearest_name(name, name.find('.') == std::string::npos ? known : proposed);
    fail("[{}] no module is called '{}'{}; there are {}", where, name,
         nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest), join(known));
  }
}

void check_syntax(const std::string& regex, std::string_view where) {
  tokenizers::Pattern::regex(regex, where);
  whole(regex, where);  // a comment or a quotation may reach into what stands around it
}

void check_regex(const std::string& regex, const std::vector<std::string>& modules, std::string_view where) {
  if (regex.empty()) return;
  check_syntax(regex, fmt::format("[{}]", where));
  const auto matches = [&](const std::string& module) { return matches_whole(module, regex); };
  if (std::none_of(modules.begin(), modules.end(), matches))
    fail("[{}] the expression '{}' matches no module from its beginning to its end, for example '{}'", where,
         regex, modules.empty() ? "" : modules.front());
}

}  // namespace temper
