#include "config/schema.h"

#include <algorithm>

#include "base/text.h"

namespace temper::config {
namespace {

std::string scalar_name(const Type& type, bool plural) {
  switch (type.scalar) {
    case Type::Scalar::kBool:
      return plural ? "true or false values" : "true or false";
    case Type::Scalar::kInt:
      return plural ? "integers" : "an integer";
    case Type::Scalar::kFloat:
      return plural ? "numbers" : "a number";
    case Type::Scalar::kString:
      return plural ? "texts" : "text";
    case Type::Scalar::kChoice:
      return (plural ? "names out of " : "one of ") + join(type.choices);
    case Type::Scalar::kTable:
      break;
  }
  return "a mapping of mappings to text";
}

}  // namespace

std::string expectation(const Field& field, bool element) {
  const Type& type = field.type;
  const bool list = type.list && !element;
  std::string out;
  if (field.kind == Field::Kind::kList)
    return field.elements.shorthand_key.empty() ? "a list of mappings"
                                                : "text, or a list of texts and mappings";
  if (list) out = type.size < 0 ? "a list of " : fmt::format("a list of {} ", type.size);
  if (field.limits.allowed.empty()) {
    out += scalar_name(type, list);
  } else {
    std::vector<std::string> values;
    for (const Json& value : field.limits.allowed)
      values.push_back(value.is_string() ? value.as_string() : value.dump());
    out += (list ? "values out of " : "one of ") + join(values);
  }
  const std::string limits = field.limits.bounds();
  if (!limits.empty()) out += " " + limits;
  if (type.optional && !element) out += " or null";
  return out;
}

bool Limits::take(const Json& value) const {
  if (value.is_number()) {
    const double number = value.as_double();
    if (minimum && (open_minimum ? number <= *minimum : number < *minimum)) return false;
    if (maximum && (open_maximum ? number >= *maximum : number > *maximum)) return false;
  }
  const auto same = [&](const Json& each) {
    return each == value || (each.is_number() && value.is_number() && each.as_double() == value.as_double());
  };
  return allowed.empty() || std::any_of(allowed.begin(), allowed.end(), same);
}

std::string Limits::bounds() const {
  std::vector<std::string> parts;
  const auto bound = [&](const std::optional<double>& value, bool open, const char* strict,
                         const char* loose) {
    if (value) parts.push_back(fmt::format("{} {:g}", open ? strict : loose, *value));
  };
  bound(minimum, open_minimum, "above", "at least");
  bound(maximum, open_maximum, "below", "at most");
  return join(parts, " and ");
}

Field& Field::at_least(double bound) {
  limits.minimum = bound;
  limits.open_minimum = false;
  return *this;
}

Field& Field::above(double bound) {
  limits.minimum = bound;
  limits.open_minimum = true;
  return *this;
}

Field& Field::at_most(double bound) {
  limits.maximum = bound;
  limits.open_maximum = false;
  return *this;
}

Field& Field::below(double bound) {
  limits.maximum = bound;
  limits.open_maximum = true;
  return *this;
}

Field& Field::one_of(std::vector<Json> values) {
  limits.allowed = std::move(values);
  return *this;
}

Field& Field::required() {
  is_required = true;
  return *this;
}

Field& Field::path() {
  invariant(kind == Kind::kValue && type.scalar == Type::Scalar::kString, "only text can be a path");
  is_path = true;
  return *this;
}

Field& Field::rare() {
  is_rare = true;
  return *this;
}

Field& Field::changeable() {
  may_change = true;
  return *this;
}

Field& Field::older_runs_had(Json value) {
  before.value = std::move(value);
  return *this;
}

Field& Field::formerly(std::string old_name) {
  before.names.push_back(std::move(old_name));
  return *this;
}

Field& Field::formerly_flat() {
  invariant(kind == Kind::kGroup, "only the keys of a group can have been in the group around it");
  before.is_flat = true;
  return *this;
}

Field& Field::answer(std::string value, std::string text) {
  limits.answers.emplace_back(std::move(value), std::move(text));
  return *this;
}

Field& Field::shorthand(std::string key) {
  invariant(kind == Kind::kList && group->find(key) != nullptr,
            fmt::format("no key '{}' for a shorthand", key));
  elements.shorthand_key = std::move(key);
  return *this;
}

Field& Schema::add(std::string_view name, std::string_view description, Field::Kind kind) {
  invariant(find(name) == nullptr, fmt::format("key '{}' is declared twice", name));
  const bool plain =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  invariant(plain && !name.empty(), fmt::format("key '{}' must consist of a-z, 0-9 and _", name));
  auto field = std::make_unique<Field>();
  field->kind = kind;
  field->name = name;
  field->description = description;
  return *fields_.emplace_back(std::move(field));
}

const Field* Schema::find(std::string_view name) const {
  for (const auto& field : fields_)
    if (field->name == name) return field.get();
  return nullptr;
}

std::pair<const Field*, std::string> Schema::find_former(std::string_view name) const {
  for (const auto& field : fields_)
    if (std::ranges::count(field->before.names, name) > 0) return {field.get(), field->name};
  for (const auto& group : fields_) {
    if (!group->before.is_flat) continue;
    auto [field, path] = group->group->find_former(name);
    if (const Field* same = group->group->find(name); !field && same && same->before.names.empty())
      field = same, path = name;
    if (field != nullptr) return {field, group->name + "." + path};
  }
  return {nullptr, ""};
}

void Schema::answer(const std::string& name, std::string meant) {
  const auto is_sentence = [](const std::string& text) { return text.find(' ') != std::string::npos; };
  std::vector<std::string>& all = answers_[name];
  invariant(all.empty() || !(is_sentence(all.front()) || is_sentence(meant)),
            fmt::format("the unknown key '{}' has two answers", name));
  all.push_back(std::move(meant));
}

const Field* Schema::find_path(std::string_view path) const {
  const size_t dot = path.find('.');
  std::string_view name = path.substr(0, dot);
  const size_t bracket = name.find('[');
  const Field* field = find(name.substr(0, bracket));
  if (field == nullptr || dot == std::string_view::npos) return field;
  if ((field->kind == Field::Kind::kList) != (bracket != std::string_view::npos)) return nullptr;
  return field->group ? field->group->find_path(path.substr(dot + 1)) : nullptr;
}

Json value_of(const Schema& schema) {
  Json::Object values;
  for (const auto& field : schema.fields()) values.emplace_back(field->name, value_of(*field));
  return values;
}

Json value_of(const Field& field) {
  if (field.kind == Field::Kind::kValue) return field.get();
  if (field.kind == Field::Kind::kGroup) return value_of(*field.group);
  Json::Array elements;
  for (size_t i = 0; i < field.elements.size(); ++i) elements.push_back(value_of(field.elements.at(i)));
  return elements;
}

bool Schema::was_written(std::string_view path) const {
  invariant(find_path(path) != nullptr, fmt::format("no key '{}' is declared", path));
  const auto begins = [&](const std::string& prefix) {
    const auto at = written_.lower_bound(prefix);
    return at != written_.end() && at->starts_with(prefix);
  };
  const std::string key(path);
  return written_.contains(key) || begins(key + ".") || begins(key + "[");
}

}  // namespace temper::config
