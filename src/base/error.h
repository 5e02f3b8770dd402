#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace temper {

// Why a run ended; the number is the program's exit code.
enum class ErrorKind : int {
  kDefect = 1,       // a mistake of ours, on the host or on a device
  kInput = 2,        // bad input or configuration
  kInterrupted = 3,  // stopped by a signal, after saving
  kResources = 4,    // out of memory or disk space, or a device that is lost or not there
};

// The program's one exception type. The message says where, what was found, what was expected, and what to
// do, for example "[config.json] hidden_act is 'gelu'; only 'silu' is supported".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kInput)
      : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Memory ran out, of the host or of a device: the same with less at once may succeed.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(message, ErrorKind::kResources) {}
};

// Throws a kInput Error with the formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Throws a kResources Error with the formatted message.
template <class... Args>
[[noreturn]] void fail_resources(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ErrorKind::kResources);
}

// An invariant of ours: throws a kDefect Error "[file:line] message" when `ok` is false.
void invariant(bool ok, std::string_view message, const char* file = __builtin_FILE(),
               int line = __builtin_LINE());

}  // namespace temper
