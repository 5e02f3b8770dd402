#include "tokenizers/text/component.h"

#include "base/error.h"

namespace temper::tokenizers {
namespace {

const Json* option(const Json& component, std::string_view key) {
  const Json* value = component.find(key);
  return value && !value->is_null() ? value : nullptr;
}

}  // namespace

void for_each_component(const Json& json, std::string_view members, std::string_view place,
                        const ComponentReader& read) {
  if (json.is_null()) return;
  if (component_type(json, place) != "Sequence") return read(json, std::string(place));
  const Json::Array& list = as_list(required(json, members, place), fmt::format("{}.{}", place, members));
  for (size_t i = 0; i < list.size(); ++i)
    for_each_component(list[i], members, fmt::format("{}.{}[{}]", place, members, i), read);
}

const std::string& component_type(const Json& component, std::string_view place) {
  if (!component.is_object()) fail("{} must be an object, found {}", place, component.kind_name());
  return as_text(required(component, "type", place), fmt::format("{}.type", place));
}

void refuse_component(std::string_view place, std::string_view type, std::string_view supported) {
  fail("{}.type is '{}'; supported: {}", place, type, supported);
}

bool bool_option(const Json& component, std::string_view key, bool otherwise, std::string_view place) {
  const Json* value = option(component, key);
  if (!value) return otherwise;
  if (!value->is_bool()) fail("{}.{} must be true or false, found {}", place, key, value->kind_name());
  return value->as_bool();
}

std::string string_option(const Json& component, std::string_view key, std::string_view otherwise,
                          std::string_view place) {
  const Json* value = option(component, key);
  return value ? as_text(*value, fmt::format("{}.{}", place, key)) : std::string(otherwise);
}

const Json& required(const Json& component, std::string_view key, std::string_view place) {
  const Json* value = component.find(key);
  if (!component.is_object()) fail("{} must be an object, found {}", place, component.kind_name());
  if (!value) fail("{} has no '{}'", place, key);
  return *value;
}

const std::string& as_text(const Json& value, std::string_view place) {
  if (!value.is_string()) fail("{} must be a string, found {}", place, value.kind_name());
  return value.as_string();
}

const Json::Array& as_list(const Json& value, std::string_view place) {
  if (!value.is_array()) fail("{} must be an array, found {}", place, value.kind_name());
  return value.as_array();
}

int32_t as_token_id(const Json& value, std::string_view place) {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > INT32_MAX)
    fail("{} must be a token id, found {}", place,
         value.is_int() ? value.dump() : std::string(value.kind_name()));
  return static_cast<int32_t>(value.as_int());
}

}  // namespace temper::tokenizers
