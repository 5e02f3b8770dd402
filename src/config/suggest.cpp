#include "config/suggest.h"

#include <algorithm>
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

// If a key in the same group as `path` has the name of one that may be meant, only that one, for example of
// an adapter. Otherwise all that may be meant.
std::vector<std::string> likely_keys(const Schema& root, const std::string& path,
                                     const std::vector<std::string>& meant) {
  const std::string parent = split_leaf(path).first;
  const Schema* siblings = parent.empty() ? nullptr : schema_at(root, parent);
  for (const std::string& key : meant)
    if (const std::string leaf = split_leaf(key).second; siblings && siblings->find(leaf) != nullptr)
      return {parent + "." + leaf};
  return meant;
}

// The keys that had this name in older versions.
void collect_renamed(const Schema& schema, const std::string& prefix, const std::string& name,
                     std::vector<std::string>& paths) {
  for (const auto& field : schema.fields()) {
    const std::string path = prefix + field->name;
    if (std::ranges::count(field->before.names, name) > 0) paths.push_back(path);
    if (field->group)
      collect_renamed(*field->group, path + (field->kind == Field::Kind::kList ? "[]." : "."), name, paths);
  }
}

std::string lower_with_underscores(std::string text) {
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What other programs, or older versions, call a key, answered with its name.
std::string answer_of(const Schema& root, const std::string& path) {
  const std::string name = lower_with_underscores(split_leaf(path).second);
  if (const std::string key = former_key(root, path); !key.empty())
    return fmt::format("its name is '{}' now", key);
  std::vector<std::string> renamed;
  collect_renamed(root, "", name, renamed);
  if (!renamed.empty())
    return fmt::format("its name is '{}' now", join(likely_keys(root, path, renamed), "' or '"));
  const auto found = root.answers().find(name);
  if (found == root.answers().end()) return "";
  const std::vector<std::string>& meant = found->second;
  if (meant.front().find(' ') != std::string::npos) return meant.front();
  return fmt::format("Temper calls it '{}'", join(likely_keys(root, path, meant), "' or '"));
}

// The key is in several places: at most three. Those in lists count where they are nearer to the top than all
// others, as the rank of an adapter is.
std::vector<std::string> places_of(const std::vector<std::string>& same_leaf) {
  constexpr size_t kMost = 3;
  const auto in_list = [](const std::string& key) { return key.find("[]") != std::string::npos; };
  const auto depth = [](const std::string& key) { return std::ranges::count(key, '.'); };
  std::vector<std::string> outside = same_leaf, places;
  std::erase_if(outside, in_list);
  for (const std::string& key : same_leaf)
    if (!in_list(key) ||
        std::ranges::all_of(outside, [&](const std::string& other) { return depth(key) < depth(other); }))
      places.push_back(key);
  if (places.size() > kMost) places = outside;
  if (places.size() > kMost) places.clear();
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

std::string former_key(const Schema& root, const std::string& path) {
  const Schema* schema = &root;
  std::string now;
  bool is_former = false;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    std::string step = path.substr(begin, end - begin);
    const std::string name = lower_with_underscores(step.substr(0, step.find('[')));
    const Field* field = schema->find(name);
    if (field == nullptr || end == path.size())
      if (auto [former, its_path] = schema->find_former(name); former != nullptr) {
        field = former;
        step = std::move(its_path);
        is_former = true;
      }
    if (field == nullptr || (end < path.size() && !field->group)) return "";
    now += (now.empty() ? "" : ".") + step;
    schema = field->group.get();
    begin = end + 1;
  }
  return is_former ? now : "";
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
