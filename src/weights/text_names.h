#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Models that also read pictures. Tables name their text as the classes of transformers and PEFT's adapters
// do: "model.language_model.layers.0.…" and "lm_head.weight". Files begin these names in one of three ways.
namespace temper {

// Also the beginning of the text's names in tables.
inline constexpr std::string_view kTextInTables = "model.language_model.";
inline constexpr std::string_view kHeadInTables = "lm_head.";

// How files begin the names of the text's layers and of its head.
struct TextNames {
  std::string_view text = kTextInTables, head = kHeadInTables;
  bool operator==(const TextNames&) const = default;
};

// How the published files of such a model do, by its model_type; nothing for models that read text alone.
std::optional<TextNames> published_text_names(std::string_view model_type);

// How a file's tensor is named, if it is one of the text's layers; nothing for others.
std::optional<TextNames> text_names_of(std::string_view name_in_file);
std::string name_in_table(std::string_view name_in_file);
std::string name_in_files(std::string_view name_in_table, const TextNames& names);

// Of the tower that reads pictures and of what leads from it to the text: how files begin their names.
const std::vector<std::string>& tower_beginnings();
bool is_of_tower(std::string_view name);

}  // namespace temper
