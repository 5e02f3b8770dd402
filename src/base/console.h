#pragma once
#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/shown.h"

// Standard output. What a command reports is for people, and shown; what a model answers is exact, except on
// a terminal, which a model must not command.
namespace temper {

void print_exactly(std::string_view text);
void print_answer(std::string_view text);  // at once

template <class... Args>
void print_line(fmt::format_string<Args...> format, Args&&... args) {
  print_exactly(shown(fmt::format(format, std::forward<Args>(args)...)) + "\n");
}

}  // namespace temper
