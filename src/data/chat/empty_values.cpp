#include "data/chat/empty_values.h"

namespace temper::data {

bool holds_something(const Json& value) {
  return !value.is_null() && value != Json("") && value != Json(Json::Array{}) &&
         value != Json(Json::Object{});
}

void remove_nulls(Json& value) {
  if (value.is_array())
    for (Json& item : value.as_array()) remove_nulls(item);
  if (!value.is_object()) return;
  std::erase_if(value.as_object(), [](const auto& member) { return member.second.is_null(); });
  for (auto& [name, member] : value.as_object()) remove_nulls(member);
}

}  // namespace temper::data
