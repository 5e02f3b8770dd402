#include "config/suggest.h"

#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace temper::config {
namespace {

void collect(const Schema& schema, const std::string& prefix, std::vector<std::string>& paths) {
  for (const auto& field : schema.fields()) {
    const std::string path = prefix + field->name;
    paths.push_back(path);
    if (field->group) collect(*field->group, path + (field->kind == Field::Kind::kList ? "[]." : "."), paths);
  }
}

// "a.b.c" -> {"a.b", "c"}; {"", "c"} without a dot.
std::pair<std::string, std::string> split_leaf(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

const Schema* schema_at(const Schema& root, const std::string& path) {
  if (path.empty()) return &root;
  const Field* field = root.find_path(path);
  return field != nullptr ? field->group.get() : nullptr;
}

// Where keys beside `path` have that name too, it is the one among them that is meant: of an adapter, say.
std::string beside(const Schema& root, const std::string& path, const std::string& meant) {
  const std::string parent = split_leaf(path).first, leaf = split_leaf(meant).second;
  const Schema* siblings = parent.empty() ? nullptr : schema_at(root, parent);
  return siblings != nullptr && siblings->find(leaf) != nullptr ? parent + "." + leaf : meant;
}

std::string lower_with_underscores(std::string text) {
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What other programs call a key, answered with ours.
std::string answer_of(const Schema& root, const std::string& path) {
  const auto found = root.answers().find(lower_with_underscores(split_leaf(path).second));
  if (found == root.answers().end()) return "";
  const std::string& meant = found->second;
  if (meant.find(' ') != std::string::npos) return meant;
  return fmt::format("Temper calls it '{}'", beside(root, path, meant));
}

// The key is in several places: those outside of lists, and of these at most three.
std::vector<std::string> places_of(const std::vector<std::string>& same_leaf) {
  std::vector<std::string> places = same_leaf;
  const auto in_list = [](const std::string& key) { return key.find("[]") != std::string::npos; };
  std::erase_if(places, in_list);
  if (places.size() > 3) places.clear();
  return places;
}

// A key misplaced (the same name elsewhere) is likelier than one misspelt.
std::string suggestion(const Schema& root, const std::string& path) {
  const auto [parent, leaf] = split_leaf(path);
  const std::vector<std::string> paths = all_paths(root);
  std::vector<std::string> same_leaf;
  for (const std::string& candidate : paths)
    if (split_leaf(candidate).second == leaf) same_leaf.push_back(candidate);
  if (same_leaf.size() == 1) return same_leaf.front();
  const std::string moved = nearest_name(path, same_leaf);
  if (!moved.empty()) return moved;
  if (const auto places = places_of(same_leaf); !places.empty()) return join(places, "' or '");
  if (const Schema* siblings = schema_at(root, parent)) {
    const std::string near = nearest_name(leaf, names_of(*siblings));
    return near.empty() || parent.empty() ? near : parent + "." + near;
  }
  return nearest_name(path, paths);
}

}  // namespace

std::vector<std::string> names_of(const Schema& schema) {
  std::vector<std::string> names;
  for (const auto& field : schema.fields()) names.push_back(field->name);
  return names;
}

std::vector<std::string> all_paths(const Schema& schema) {
  std::vector<std::string> paths;
  collect(schema, "", paths);
  return paths;
}

void fail_unknown(const Schema& root, const std::string& path, const std::string& where) {
  if (const std::string answer = answer_of(root, path); !answer.empty())
    fail("[{}] unknown key '{}'; {}", where, path, answer);
  const std::string near = suggestion(root, path);
  if (!near.empty()) fail("[{}] unknown key '{}'; did you mean '{}'?", where, path, near);
  const std::string parent = split_leaf(path).first;
  const Schema* siblings = schema_at(root, parent);
  const std::string place =
      siblings == nullptr || parent.empty() ? "at the top" : fmt::format("in '{}'", parent);
  fail("[{}] unknown key '{}'; the keys {} are {}", where, path, place,
       join(names_of(siblings != nullptr ? *siblings : root)));
}

}  // namespace temper::config
