#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/shown.h"

namespace temper {
namespace {

std::mutex mutex;
bool silent = false;
std::string& prefix() {
  static std::string text;
  return text;
}

std::function<void(std::string_view)>& copy() {
  static std::function<void(std::string_view)> function;
  return function;
}

void write_line(std::string_view label, std::string_view message) {
  const std::lock_guard lock(mutex);
  if (silent) return;
  const std::string line = std::string(label).append(shown(message)).append("\n"), written = prefix() + line;
  std::fwrite(written.data(), 1, written.size(), stderr);
  if (copy()) copy()(line);
}

}  // namespace

void log_info(std::string_view message) { write_line("", message); }
void log_warning(std::string_view message) { write_line("warning: ", message); }

void log_warning_once(const std::string& message) {
  static std::mutex said_by_one;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(said_by_one);
    if (!said.insert(message).second) return;
  }
  log_warning(message);
}

void silence_log() {
  const std::lock_guard lock(mutex);
  silent = true;
}

void set_log_copy(std::function<void(std::string_view)> function) {
  const std::lock_guard lock(mutex);
  copy() = std::move(function);
}

void log_quietly(std::string_view message) {
  const std::lock_guard lock(mutex);
  if (copy() && !silent) copy()(shown(message).append("\n"));
}

void set_log_prefix(std::string_view text) {
  const std::lock_guard lock(mutex);
  prefix() = text;
}

}  // namespace temper
