#include "templates/values/value.h"

#include <algorithm>

#include "base/error.h"
#include "templates/values/limits.h"

namespace temper::templates {
namespace {

constexpr size_t kOverhead = 64;  // bytes of a text or list in addition to what it holds

int checked_depth(int depth) {
  if (depth > kMostDepth) fail("lists are nested more than {} levels deep", kMostDepth);
  return depth;
}

int depth_around(const List& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return checked_depth(depth + 1);
}

template <class Data>
Data make_sequence(List items) {
  check_items(items.size(), 1);
  spend(items.size());
  spend_memory(items.size() * sizeof(Value) + kOverhead);
  Data data;
  data.depth = depth_around(items);
  data.items = std::move(items);
  return data;
}

}  // namespace

Value::Value(std::string text) : Value(make_text({std::move(text)})) {}

Value Value::markup(std::string text) { return make_text({std::move(text), true}); }

Value Value::traced(std::string text, Origins origins, bool markup) {
  return make_text({std::move(text), markup, std::move(origins)});
}

Value Value::make_text(TextData data) {
  check_text_size(1, data.text.size());
  spend(data.text.size());
  spend_memory(data.text.size() + data.origins.size() * sizeof(Origin) + kOverhead);
  Value value;
  value.data_ = std::make_shared<const TextData>(std::move(data));
  return value;
}

Value Value::list(List items) {
  Value value;
  value.data_ = std::make_shared<const ListData>(make_sequence<ListData>(std::move(items)));
  return value;
}

Value Value::tuple(List items) {
  Value value;
  value.data_ = std::make_shared<const TupleData>(make_sequence<TupleData>(std::move(items)));
  return value;
}

Value Value::view(List items, std::string_view name, std::string text) {
  ViewData data = make_sequence<ViewData>(std::move(items));
  data.name = name;
  data.text = std::move(text);
  Value value;
  value.data_ = std::make_shared<const ViewData>(std::move(data));
  return value;
}

Value Value::generator(List items) {
  Value value;
  value.data_ = std::make_shared<GeneratorData>(make_sequence<GeneratorData>(std::move(items)));
  return value;
}

Value Value::dict(Dict entries) {
  int depth = 0;
  for (const auto& [key, item] : entries) depth = std::max({depth, key.depth(), item.depth()});
  spend(entries.size());
  spend_memory(entries.size() * sizeof(Dict::value_type) + kOverhead);
  DictData data{std::move(entries), checked_depth(depth + 1)};
  Value value;
  value.data_ = std::make_shared<const DictData>(std::move(data));
  return value;
}

Value Value::watched_dict(Dict entries) {
  Value plain = dict(std::move(entries));
  DictData data = *std::get<std::shared_ptr<const DictData>>(plain.data_);
  data.seen = std::make_shared<std::vector<bool>>(data.entries.size());
  plain.data_ = std::make_shared<const DictData>(std::move(data));
  return plain;
}

void Value::see(size_t entry) const {
  const auto& dict = std::get<std::shared_ptr<const DictData>>(data_);
  if (dict->seen) (*dict->seen)[entry] = true;
}

List Value::unseen() const {
  List keys;
  const auto& dict = std::get<std::shared_ptr<const DictData>>(data_);
  for (size_t i = 0; dict->seen && i < dict->entries.size(); ++i)
    if (!(*dict->seen)[i]) keys.push_back(dict->entries[i].first);
  return keys;
}

Value Value::from_json(const Json& json, std::optional<Source> source) {
  const auto text_value = [&](const std::string& text) {
    return source && !text.empty() ? traced(text, {{0, text.size(), *source}}, false) : Value(text);
  };
  switch (json.kind()) {
    case Json::Kind::kNull:
      return None();
    case Json::Kind::kBool:
      return json.as_bool();
    case Json::Kind::kInt:
      return json.as_int();
    case Json::Kind::kFloat:
      return json.as_double();
    case Json::Kind::kString:
      return text_value(json.as_string());
    case Json::Kind::kArray: {
      List items;
      for (const Json& item : json.as_array()) items.push_back(from_json(item, source));
      return list(std::move(items));
    }
    case Json::Kind::kObject:
      break;
  }
  Dict entries;
  for (const auto& [key, item] : json.as_object())
    entries.emplace_back(text_value(key), from_json(item, source));
  return dict(std::move(entries));
}

int64_t Value::integer() const { return is(Kind::kBool) ? std::get<bool>(data_) : std::get<int64_t>(data_); }

double Value::number() const {
  return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(integer());
}

const List& Value::items() const {
  if (is(Kind::kList)) return std::get<std::shared_ptr<const ListData>>(data_)->items;
  if (is(Kind::kTuple)) return std::get<std::shared_ptr<const TupleData>>(data_)->items;
  if (is(Kind::kView)) return view().items;
  return std::get<std::shared_ptr<GeneratorData>>(data_)->items;
}

List Value::take_generator() const {
  return std::exchange(std::get<std::shared_ptr<GeneratorData>>(data_)->items, {});
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : entries())
    if (name.is_string() && name.text() == key) return &value;
  return nullptr;
}

std::string_view Value::type_name() const {
  if (is(Kind::kView)) return view().name;
  static constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool",      "int",  "float",     "str",      "list",
      "tuple",     "view",     "generator", "dict", "Namespace", "function", "LoopContext"};
  return kNames[static_cast<size_t>(kind())];
}

int Value::depth() const {
  if (is(Kind::kList)) return std::get<std::shared_ptr<const ListData>>(data_)->depth;
  if (is(Kind::kTuple)) return std::get<std::shared_ptr<const TupleData>>(data_)->depth;
  if (is(Kind::kView)) return view().depth;
  if (is(Kind::kGenerator)) return std::get<std::shared_ptr<GeneratorData>>(data_)->depth;
  if (is(Kind::kDict)) return std::get<std::shared_ptr<const DictData>>(data_)->depth;
  return 0;
}

}  // namespace temper::templates
