#pragma once
#include <functional>
#include <string_view>

// Lines on standard error, as base/shown.h shows text. A progress line that is being redrawn is cleared
// first (see set_log_prefix).
namespace temper {

void log_info(std::string_view message);
void log_warning(std::string_view message);         // "warning: …"
void log_warning_once(const std::string& message);  // the same text only once in a process

// Of several ranks all but one say nothing: neither lines nor copies of them.
void silence_log();

// What gets a copy of every line, its end included (LogFile); null: nothing.
void set_log_copy(std::function<void(std::string_view line)> copy);
void log_quietly(std::string_view message);  // to that copy alone

// Text written before each log line, for example the escape sequence that clears a live progress line.
void set_log_prefix(std::string_view prefix);

}  // namespace temper
