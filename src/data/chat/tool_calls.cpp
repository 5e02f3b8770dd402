#include "data/chat/tool_calls.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "data/chat/chat.h"
#include "data/chat/empty_values.h"
#include "data/chat/fields.h"

namespace temper::data {
namespace {

constexpr std::string_view kCalls = "tool_calls", kOlderCall = "function_call";

Json* member(Json& json, std::string_view name) {
  if (!json.is_object()) return nullptr;
  for (auto& [key, value] : json.as_object())
    if (key == name) return &value;
  return nullptr;
}

// What holds the name and the arguments: the call, or its function.
Json& function_of(Json& call) {
  Json* function = member(call, "function");
  return function ? *function : call;
}

// Calls `change` for the arguments of each call; `fill`: those that are absent are empty.
void for_each_arguments(Json& message, bool fill, const std::function<void(Json&)>& change) {
  Json* calls = member(message, kCalls);
  if (!calls || !calls->is_array()) return;
  for (Json& call : calls->as_array()) {
    Json& function = function_of(call);
    if (fill && function.is_object() && !function.find("arguments"))
      function.set("arguments", Json::Object{});
    if (Json* arguments = member(function, "arguments")) change(*arguments);
  }
}

void read_call(Json& call, const std::string& place) {
  Json& function = function_of(call);
  const Json* name = function.is_object() ? field_of(function, "name") : nullptr;
  if (!name || !name->is_string() || name->as_string().empty())
    fail("{} is {}, expected {{\"function\": {{\"name\": …, \"arguments\": …}}}}", place, call.dump());
  std::erase_if(function.as_object(), [](const auto& field) {
    return field.first == "arguments" && field.second.is_string() && trim(field.second.as_string()).empty();
  });
}

bool is_same_call(const Json& calls, const Json& function) {
  if (!calls.is_array() || calls.as_array().size() != 1) return false;
  Json call = calls.as_array()[0], other = function;
  read_call(call, "");
  read_call(other, "");
  return function_of(call) == other;
}

}  // namespace

void read_calls(Json& message, const std::string& place) {
  if (Json* calls = member(message, kCalls)) {
    if (!calls->is_array()) fail("{}.{} must be an array, found {}", place, kCalls, calls->kind_name());
    for (size_t i = 0; i < calls->as_array().size(); ++i)
      read_call(calls->as_array()[i], fmt::format("{}.{}[{}]", place, kCalls, i));
  }
  const Json* call = member(message, kOlderCall);
  if (!call) return;
  if (!call->is_object() || !field_of(*call, "name"))
    fail("{}.{} is {}, expected a call, {{\"name\": …, \"arguments\": …}}", place, kOlderCall, call->dump());
  if (const Json* calls = message.find(kCalls)) {
    if (!is_same_call(*calls, *call))
      fail("{} has {} and another {}; expected one of them", place, kCalls, kOlderCall);
    return;
  }
  Json older{Json::Object{{"type", "function"}, {"function", *call}}};
  read_call(older, place);
  message.set(kCalls, Json::Array{std::move(older)});
}

Json::Array calls_of_text(const std::string& text, const std::string& field) {
  Json parsed;
  try {
    parsed = Json::parse(text, "");
  } catch (const Error&) {
    fail("{} is a text that is not valid JSON", field);
  }
  Json::Array functions = parsed.is_array() ? std::move(parsed.as_array()) : Json::Array{std::move(parsed)};
  Json::Array calls;
  for (Json& function : functions) {
    if (!function.is_object() || !field_of(function, "name"))
      fail("{} must be a call, {{\"name\": …, \"arguments\": …}}, or a list of them", field);
    calls.push_back(Json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return calls;
}

Json::Array with_arguments(const Json::Array& messages, Arguments form) {
  Json::Array out = messages;
  if (form == Arguments::kAsGiven) return out;
  const auto change = [&](Json& arguments) {
    if (form == Arguments::kText && arguments.is_object()) arguments = arguments.dump();
    if (form == Arguments::kText || !arguments.is_string()) return;
    try {
      Json parsed = Json::parse(arguments.as_string(), "");
      if (!parsed.is_object()) return;
      if (form == Arguments::kFilled) remove_nulls(parsed);
      arguments = std::move(parsed);
    } catch (const Error&) {  // stays the text that it is
    }
  };
  for (Json& message : out) for_each_arguments(message, form == Arguments::kFilled, change);
  return out;
}

}  // namespace temper::data
