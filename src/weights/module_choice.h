#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// Which modules of a model are meant, by their Hugging Face names without ".weight"
// ("model.layers.0.self_attn.q_proj").
struct ModuleChoice {
  std::vector<std::string> names = {};  // whole names, or what they end with behind a dot ("q_proj")
  std::string regex = {};               // of whole names, besides

  bool empty() const { return names.empty() && regex.empty(); }
  bool contains(std::string_view module) const;
  bool operator==(const ModuleChoice&) const = default;
};

// Whether `module` is `name` or ends with it behind a dot.
bool is_module(std::string_view module, std::string_view name);
// Whether a pattern of ranks or alphas matches: a regular expression of the whole name, or of what it ends
// with behind a dot.
bool matches_module_pattern(std::string_view module, const std::string& pattern);

// An Error "[where] …" for each name that none of `modules` has; it proposes those of `proposed`.
void check_names(const std::vector<std::string>& names, const std::vector<std::string>& modules,
                 const std::vector<std::string>& proposed, std::string_view where);
// An Error "where: …" for what is no regular expression; it shows the expression as it was written.
void check_syntax(const std::string& regex, std::string_view where);
// And "[where] …" for one that no module matches; an empty one chooses nothing.
void check_regex(const std::string& regex, const std::vector<std::string>& modules, std::string_view where);

}  // namespace temper
