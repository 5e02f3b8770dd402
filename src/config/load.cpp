#include "config/load.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/scalars.h"
#include "config/suggest.h"
#include "config/yaml.h"

namespace temper::config {
namespace {

std::string child(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + "." + name;
}

class Loader {
 public:
  explicit Loader(Schema& root) : root_(root) {}

  void read_file(const Node& node) {
    if (node.kind != Node::Kind::kNull) read_group(root_, node, "");
  }

  void read_flags(const std::vector<std::string>& flags) {
    for (size_t i = 0; i < flags.size(); ++i) {
      const std::string& flag = flags[i];
      if (!flag.starts_with("--") || flag.size() < 3)
        fail("[{}] expected a flag such as --key VALUE, found '{}'", kCommandLine, flag);
      const size_t equals = flag.find('=');
      const std::string path = flag.substr(2, equals == std::string::npos ? equals : equals - 2);
      const Field& field = find_flag(path);
      if (!given_.insert(path).second)
        fail("[{}] flag --{} is given twice; give it once", kCommandLine, path);
      if (equals != std::string::npos) {
        read_field(field, parse_flag_value(std::string_view(flag).substr(equals + 1)), path);
        continue;
      }
      if (i + 1 == flags.size() || flags[i + 1].starts_with("--"))
        fail("[{}] flag --{} has no value; expected {}", kCommandLine, path, expectation(field));
      read_field(field, parse_flag_value(flags[++i]), path);
    }
  }

  void finish(std::string_view where) {
    check_required(root_, "", where);
    root_.set_written(std::move(written_));
  }

 private:
  // The value or list that a flag sets.
  const Field& find_flag(const std::string& path) const {
    for (size_t end = path.find_first_of(".["); end != std::string::npos;
         end = path.find_first_of(".[", end + 1)) {
      const Field* field = root_.find_path(path.substr(0, end));
      const bool is_list = field != nullptr && (field->kind == Field::Kind::kList || field->type.list);
      if (is_list && field->kind != Field::Kind::kGroup)
        fail("[{}] '{}': one element of the list '{}' cannot be set; set the whole list: --{} [...]",
             kCommandLine, path, path.substr(0, end), path.substr(0, end));
    }
    const Field* field = root_.find_path(path);
    if (field == nullptr) fail_unknown(root_, path, std::string(kCommandLine));
    if (field->kind == Field::Kind::kGroup)
      fail("[{}] '{}' is a group of keys; set them one by one: --{}.{} ...", kCommandLine, path, path,
           field->group->fields().empty() ? "key" : field->group->fields().front()->name);
    return *field;
  }

  void read_group(const Schema& schema, const Node& node, const std::string& path) {
    if (node.kind == Node::Kind::kNull) return;  // a key whose keys are all commented out
    if (node.kind != Node::Kind::kMap)
      fail("[{}] {}expected a mapping of keys, found {}{}", node.where,
           path.empty() ? "" : fmt::format("'{}': ", path), describe_node(node),
           path.empty() ? "" : fmt::format("; its keys are {}", join(names_of(schema))));
    for (const auto& [key, value] : node.members) {
      const Field* field = schema.find(key);
      const std::string key_path = child(path, key);
      if (field == nullptr && key.find('.') != std::string::npos && schema.find_path(key) != nullptr)
        fail("[{}] unknown key '{}'; keys are dotted only in flags, in YAML they are nested", value.key_where,
             key_path);
      if (field == nullptr) fail_unknown(root_, key_path, value.key_where);
      read_field(*field, value, key_path);
    }
  }

  void read_field(const Field& field, const Node& node, const std::string& path) {
    switch (field.kind) {
      case Field::Kind::kGroup:
        read_group(*field.group, node, path);
        break;
      case Field::Kind::kList:
        read_list(field, node, path);
        break;
      case Field::Kind::kValue:
        field.set(read_value(field, node, path));
        break;
    }
    if (field.kind != Field::Kind::kGroup) written_.insert(path);
  }

  // One text where a list may be stands for its only element.
  static Node as_list(const Field& field, const Node& node) {
    if (node.kind != Node::Kind::kText || field.shorthand_key.empty()) return node;
    return {.kind = Node::Kind::kList, .items = {node}, .where = node.where, .key_where = node.key_where};
  }

  void read_list(const Field& field, const Node& given, const std::string& path) {
    const Node node = as_list(field, given);
    if (node.kind != Node::Kind::kList)
      fail("[{}] '{}': expected {}, found {}", node.where, path, expectation(field), describe_node(node));
    forget_elements(path);
    field.reset(node.items.size());
    for (size_t i = 0; i < node.items.size(); ++i) {
      const Node& item = node.items[i];
      const std::string item_path = fmt::format("{}[{}]", path, i);
      const Schema element = field.element(i);
      if (item.kind == Node::Kind::kText && !field.shorthand_key.empty())
        read_field(*element.find(field.shorthand_key), item, child(item_path, field.shorthand_key));
      else
        read_group(element, item, item_path);
      check_required(element, item_path, item.where);
    }
  }

  // A list set again, by a flag, starts anew.
  void forget_elements(const std::string& path) {
    std::erase_if(written_, [&](const std::string& key) { return key.starts_with(path + "["); });
  }

  void check_required(const Schema& schema, const std::string& path, std::string_view where) const {
    for (const auto& field : schema.fields()) {
      const std::string key = child(path, field->name);
      if (field->kind == Field::Kind::kGroup)
        check_required(*field->group, key, where);
      else if (field->is_required && !written_.contains(key))
        fail("[{}] '{}' is missing; expected {}. {}", where, key, expectation(*field), field->description);
    }
  }

  Schema& root_;
  std::set<std::string> written_, given_;  // keys; flags
};

}  // namespace

void load(Schema& schema, const std::string& yaml_file, const std::vector<std::string>& flags) {
  if (yaml_file.empty()) return load_text(schema, "", kCommandLine, flags);
  load_text(schema, read_file(yaml_file), yaml_file, flags);
}

void load_text(Schema& schema, std::string_view yaml, std::string_view where,
               const std::vector<std::string>& flags) {
  Loader loader(schema);
  loader.read_file(parse_yaml(yaml, where));
  loader.read_flags(flags);
  loader.finish(where);
}

}  // namespace temper::config
