#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <string>

namespace temper {
namespace {

std::mutex mutex;
std::string& prefix() {
  static std::string text;
  return text;
}

void write_line(std::string_view label, std::string_view message) {
  const std::lock_guard lock(mutex);
  std::string line = prefix();
  line.append(label).append(message).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log_info(std::string_view message) { write_line("", message); }
void log_warning(std::string_view message) { write_line("warning: ", message); }

void set_log_prefix(std::string_view text) {
  const std::lock_guard lock(mutex);
  prefix() = text;
}

}  // namespace temper
