#include "config/load.h"

#include <algorithm>
#include <deque>

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
  // `is_saved`: the file may be one that an older version wrote.
  explicit Loader(Schema& root, bool is_saved = false) : root_(root), is_saved_(is_saved) {}

  void read_file(const Node& node) {
    if (node.kind != Node::Kind::kNull) read_group(root_, node, "");
  }

  void read_flags(const std::vector<std::string>& flags) {
    for (size_t i = 0; i < flags.size(); ++i) {
      const std::string& flag = flags[i];
      if (!flag.starts_with("--") || flag.size() < 3)
        fail("[{}] expected a flag such as --key VALUE, found '{}'", kCommandLine, flag);
      const size_t equals = flag.find('=');
      const std::string given = flag.substr(2, equals == std::string::npos ? equals : equals - 2);
      const auto [target, path] = find_flag(given);
      const Field& field = *target;
      if (!given_.insert(path).second)
        fail("[{}] flag --{} is given twice; give it once", kCommandLine, given);
      refuse_behind_elements(path);
      if (equals != std::string::npos) {
        read_field(field, parse_flag_value(std::string_view(flag).substr(equals + 1)), path);
        continue;
      }
      if (i + 1 == flags.size() || flags[i + 1].starts_with("--"))
        fail("[{}] flag --{} has no value; expected {}", kCommandLine, given, expectation(field));
      read_field(field, parse_flag_value(flags[++i]), path);
    }
  }

  void finish(std::string_view where) {
    check_required(root_, "", where);
    root_.set_written(std::move(written_));
  }

 private:
  // The value or list that a flag sets, and its key: "adapters[0].rank", also for "adapters[law].rank".
  std::pair<const Field*, std::string> find_flag(const std::string& given) {
    const Schema* schema = &root_;
    std::string before, rest = given;  // "adapters[0]", "rank"
    for (size_t open = rest.find('['); open != std::string::npos; open = rest.find('[')) {
      const size_t close = rest.find(']', open);
      const std::string list = child(before, rest.substr(0, open));
      const Field* field = schema->find_path(rest.substr(0, open));
      if (field == nullptr || close == std::string::npos)
        fail_unknown(root_, given, std::string(kCommandLine));
      if (field->kind != Field::Kind::kList) fail_element(given, list);
      const size_t index = index_of(*field, list, rest.substr(open + 1, close - open - 1));
      schema = &elements_.emplace_back(field->elements.at(index));
      before = fmt::format("{}[{}]", list, index);
      rest.erase(0, close + 1);
      const std::string named = given.substr(0, given.size() - rest.size());
      if (rest.empty()) rest = "." + field->elements.shorthand_key;
      if (!rest.starts_with('.') || rest.size() == 1)
        fail("[{}] '{}' is an element of a list; set its keys one by one: --{}.{} ...", kCommandLine, named,
             named, schema->fields().front()->name);
      rest.erase(0, 1);
    }
    return {&find_field(*schema, rest, given), child(before, rest)};
  }

  const Field& find_field(const Schema& schema, const std::string& path, const std::string& given) const {
    for (size_t end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
      const Field* field = schema.find_path(path.substr(0, end));
      const std::string list = given.substr(0, given.size() - path.size() + end);
      if (field != nullptr && field->kind == Field::Kind::kList)
        fail("[{}] '{}': '{}' is a list; name an element (--{}[0]{}) or set the whole list: --{} [...]",
             kCommandLine, given, list, list, path.substr(end), list);
      if (field != nullptr && field->kind == Field::Kind::kValue && field->type.list)
        fail_element(given, list);
    }
    const Field* field = schema.find_path(path);
    if (field == nullptr) fail_unknown(root_, given, std::string(kCommandLine));
    if (field->kind == Field::Kind::kGroup) {
      if (const std::string key = former_key(root_, given); !key.empty())
        fail_former(kCommandLine, given, key);
      fail("[{}] '{}' is a group of keys; set them one by one: --{}.{} ...", kCommandLine, given, given,
           field->group->fields().empty() ? "key" : field->group->fields().front()->name);
    }
    return *field;
  }

  // Older versions had a value by this name.
  [[noreturn]] static void fail_former(std::string_view where, const std::string& given,
                                       const std::string& key) {
    fail("[{}] '{}' is a group of keys now; its former value is '{}'", where, given, key);
  }

  [[noreturn]] static void fail_element(const std::string& given, const std::string& list) {
    fail("[{}] '{}': one element of the list '{}' cannot be set; set the whole list: --{} [...]",
         kCommandLine, given, list, list);
  }

  // Of the element with this number or name.
  static size_t index_of(const Field& list, const std::string& path, const std::string& wanted) {
    std::vector<std::string> names;
    for (size_t i = 0; i < list.elements.size(); ++i) {
      const Schema element = list.elements.at(i);
      const Field* field = element.find("name");
      const Json name = field != nullptr ? field->get() : Json();  // an element may have none
      if (fmt::format("{}", i) == wanted || name == Json(wanted)) return i;
      if (name.is_string()) names.push_back(name.as_string());
    }
    if (list.elements.size() == 0)
      fail("[{}] '{}[{}]': '{}' has no elements; set the whole list: --{} [...]", kCommandLine, path, wanted,
           path, path);
    std::erase(names, "");
    fail("[{}] '{}[{}]': '{}' has no such element; its elements are 0 to {}{}", kCommandLine, path, wanted,
         path, list.elements.size() - 1, names.empty() ? "" : fmt::format(", or by name {}", join(names)));
  }

  // A whole list would undo what flags before it said of its elements.
  void refuse_behind_elements(const std::string& path) const {
    const auto element = given_.lower_bound(path + "[");
    if (element != given_.end() && element->starts_with(path + "["))
      fail("[{}] flag --{} sets the list that --{} changes; write --{} first", kCommandLine, path, *element,
           path);
  }

  void read_group(const Schema& schema, const Node& node, const std::string& path) {
    if (node.kind == Node::Kind::kNull) return;  // a key whose keys are all commented out
    if (node.kind != Node::Kind::kMap)
      fail("[{}] {}expected a mapping of keys, found {}{}", node.where,
           path.empty() ? "" : fmt::format("'{}': ", path), describe_node(node),
           path.empty() ? "" : fmt::format("; its keys are {}", join(names_of(schema))));
    for (const auto& [key, value] : node.members) {
      const Field* field = schema.find(key);
      std::string key_path = child(path, key);
      if (const auto [former, now] = former_of(schema, key, value); former != nullptr) {
        if (!is_saved_) refuse_former(schema, node, path);
        field = former;
        key_path = child(path, now);
      }
      if (field == nullptr && path.empty() && value.is_aliased)
        continue;  // a place for what aliases refer to
      if (field == nullptr && key.find('.') != std::string::npos && schema.find_path(key) != nullptr)
        fail("[{}] unknown key '{}'; keys are dotted only in flags, in YAML they are nested", value.key_where,
             key_path);
      if (field == nullptr) fail_unknown(root_, key_path, value.key_where);
      read_field(*field, value, key_path);
    }
  }

  // As Schema::find_former, of a key that is none now, or is a group now and has the value that it had
  // before.
  static std::pair<const Field*, std::string> former_of(const Schema& schema, const std::string& key,
                                                        const Node& value) {
    const Field* const field = schema.find(key);
    const bool is_value = value.kind == Node::Kind::kText;
    if (field != nullptr && (field->kind != Field::Kind::kGroup || !is_value)) return {nullptr, ""};
    return schema.find_former(key);
  }

  // All keys of the mapping that have other names now, in one message.
  [[noreturn]] void refuse_former(const Schema& schema, const Node& node, const std::string& path) const {
    std::vector<std::string> names;
    std::string where, first, now;
    for (const auto& [key, value] : node.members) {
      const auto [former, former_path] = former_of(schema, key, value);
      if (former == nullptr) continue;
      if (names.empty()) where = value.key_where, first = child(path, key), now = child(path, former_path);
      names.push_back(fmt::format("'{}' is '{}'", child(path, key), child(path, former_path)));
    }
    if (names.size() > 1) fail("[{}] keys have other names now: {}", where, join(names));
    if (root_.find_path(first) != nullptr) fail_former(where, first, now);
    fail_unknown(root_, first, where);
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

  // One text in the place of a list is its only element.
  static Node as_list(const Field& field, const Node& node) {
    if (node.kind != Node::Kind::kText || field.elements.shorthand_key.empty()) return node;
    return {.kind = Node::Kind::kList, .items = {node}, .where = node.where, .key_where = node.key_where};
  }

  void read_list(const Field& field, const Node& given, const std::string& path) {
    const Node node = as_list(field, given);
    if (node.kind != Node::Kind::kList)
      fail("[{}] '{}': expected {}, found {}", node.where, path, expectation(field), describe_node(node));
    forget_elements(path);
    field.elements.reset(node.items.size());
    for (size_t i = 0; i < node.items.size(); ++i) {
      const Node& item = node.items[i];
      const std::string item_path = fmt::format("{}[{}]", path, i);
      const Schema element = field.elements.at(i);
      if (item.kind == Node::Kind::kText && !field.elements.shorthand_key.empty())
        read_field(*element.find(field.elements.shorthand_key), item,
                   child(item_path, field.elements.shorthand_key));
      else
        read_group(element, item, item_path);
      check_required(element, item_path, item.where);
    }
  }

  // A list that a flag sets again is replaced.
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
  const bool is_saved_;
  std::set<std::string> written_, given_;  // keys; of flags
  std::deque<Schema> elements_;            // that flags set
};

}  // namespace

void load(Schema& schema, const std::string& yaml_file, const std::vector<std::string>& flags) {
  if (yaml_file.empty()) return load_text(schema, "", kCommandLine, flags);
  load_text(schema, read_stream(yaml_file), yaml_file, flags);
}

void load_saved(Schema& schema, const std::string& yaml_file, const std::vector<std::string>& flags) {
  Loader loader(schema, true);
  loader.read_file(parse_yaml(read_stream(yaml_file), yaml_file));
  loader.read_flags(flags);
  loader.finish(yaml_file);
}

void load_text(Schema& schema, std::string_view yaml, std::string_view where,
               const std::vector<std::string>& flags) {
  Loader loader(schema);
  loader.read_file(parse_yaml(yaml, where));
  loader.read_flags(flags);
  loader.finish(where);
}

}  // namespace temper::config
