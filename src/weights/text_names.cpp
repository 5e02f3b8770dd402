#include "weights/text_names.h"

#include <algorithm>
#include <array>

namespace temper {
namespace {

constexpr TextNames kNested{}, kWrapped{"language_model.model.", "language_model.lm_head."},
    kPlain{"model.", "lm_head."};
constexpr std::array kAll{kNested, kWrapped, kPlain};  // the most telling first

struct Published {
  std::string_view model_type;
  TextNames names;
};
constexpr Published kPublished[] = {{"gemma3", kWrapped},  {"mistral3", kWrapped},   {"qwen2_5_vl", kPlain},
                                    {"qwen2_vl", kPlain},  {"qwen3_5", kNested},     {"qwen3_5_moe", kNested},
                                    {"qwen3_vl", kNested}, {"qwen3_vl_moe", kNested}};

}  // namespace

std::optional<TextNames> published_text_names(std::string_view model_type) {
  const auto* const found = std::find_if(std::begin(kPublished), std::end(kPublished),
                                         [&](const auto& each) { return each.model_type == model_type; });
  return found == std::end(kPublished) ? std::nullopt : std::optional(found->names);
}

const std::vector<std::string>& tower_beginnings() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> beginnings;
    for (const std::string part : {"visual.", "vision_tower.", "multi_modal_projector."})
      beginnings.insert(beginnings.end(), {part, "model." + part});
    return beginnings;
  }();
  return all;
}

bool is_of_tower(std::string_view name) {
  return std::any_of(tower_beginnings().begin(), tower_beginnings().end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

std::optional<TextNames> text_names_of(std::string_view name_in_file) {
  if (is_of_tower(name_in_file)) return std::nullopt;
  for (const TextNames& names : kAll)
    if (name_in_file.starts_with(names.text)) return names;
  return std::nullopt;
}

std::string name_in_table(std::string_view name_in_file) {
  if (const auto names = text_names_of(name_in_file))
    return std::string(kTextInTables).append(name_in_file.substr(names->text.size()));
  for (const TextNames& names : kAll)
    if (name_in_file.starts_with(names.head))
      return std::string(kHeadInTables).append(name_in_file.substr(names.head.size()));
  return std::string(name_in_file);
}

std::string name_in_files(std::string_view name_in_table, const TextNames& names) {
  if (name_in_table.starts_with(kTextInTables))
    return std::string(names.text).append(name_in_table.substr(kTextInTables.size()));
  if (name_in_table.starts_with(kHeadInTables))
    return std::string(names.head).append(name_in_table.substr(kHeadInTables.size()));
  return std::string(name_in_table);
}

}  // namespace temper
