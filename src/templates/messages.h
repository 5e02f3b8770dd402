#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "templates/values/value.h"

namespace temper::templates {

// A conversation's messages; each text, except the roles, is traced to its message and field.
Value traced_messages(const Json& messages);

inline constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";  // of ASCII
// Around thinking in a text, in all templates that write it so.
inline constexpr std::string_view kThinkingBegin = "<think>", kThinkingEnd = "</think>";

// Where a content holds thinking, up to a </think>: bytes [begin, end), and where the answer begins behind
// it. A <think> before it may be missing, as generation prompts end with one.
struct ThinkingInside {
  size_t begin, end, answer;
};
std::optional<ThinkingInside> thinking_inside(std::string_view content);

// What data and templates call a message's reasoning. The first is what most templates read.
inline constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                                     "reasoning"};

}  // namespace temper::templates
