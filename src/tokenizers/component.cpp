#include "tokenizers/component.h"

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
  const Json& list = required(json, members, place);
  if (!list.is_array()) fail("{}.{} must be an array, found {}", place, members, list.kind_name());
  for (size_t i = 0; i < list.as_array().size(); ++i)
    for_each_component(list.as_array()[i], members, fmt::format("{}.{}[{}]", place, members, i), read);
}

const std::string& component_type(const Json& component, std::string_view place) {
  if (!component.is_object()) fail("{} must be an object, found {}", place, component.kind_name());
  const Json& type = required(component, "type", place);
  if (!type.is_string()) fail("{}.type must be a string, found {}", place, type.kind_name());
  return type.as_string();
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
  if (!value) return std::string(otherwise);
  if (!value->is_string()) fail("{}.{} must be a string, found {}", place, key, value->kind_name());
  return value->as_string();
}

const Json& required(const Json& component, std::string_view key, std::string_view place) {
  const Json* value = component.find(key);
  if (!value) fail("{} has no '{}'", place, key);
  return *value;
}

}  // namespace temper::tokenizers
