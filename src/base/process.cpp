#include "base/process.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>

#include "base/hash.h"
#include "base/numbers.h"

namespace temper {
namespace {

constexpr size_t kBootDigits = 8;

// Empty where the file is not there: unlike read_file(), nothing to complain about.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string boot_id() {
  const std::string text = text_of("/proc/sys/kernel/random/boot_id");
  return text.size() < kBootDigits ? "0" : text.substr(0, kBootDigits);
}

// Machines may have one name; containers of one machine have names of their own.
std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string host;
  for (const char* c = name.data(); *c != '\0'; ++c)
    host += std::isalnum(static_cast<unsigned char>(*c)) != 0 || *c == '.' ? *c : '_';
  return fmt::format("{}_{:04x}", host.substr(0, 64), hash64(text_of("/etc/machine-id")) & 0xffff);
}

// The 22nd field of its line; the second, in brackets, may hold anything. 0: there is no such process.
int64_t start_of(int64_t process) {
  const std::string line = text_of(fmt::format("/proc/{}/stat", process));
  size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  int64_t ticks = 0;
  std::from_chars(line.data() + at + 1, line.data() + line.size(), ticks);
  return ticks;
}

// Of a process that has ended its number stays until its parent asks for its exit code.
bool has_ended(int64_t process) {
  const std::string line = text_of(fmt::format("/proc/{}/stat", process));
  const size_t at = line.rfind(") ");
  return at != std::string::npos && line.find_first_of("ZX", at + 2) == at + 2;
}

// The number in front of the next point, which is dropped, too.
std::optional<int64_t> take_number(std::string_view& text) {
  const size_t point = text.find('.');
  if (point == std::string_view::npos) return std::nullopt;
  const auto number = parse_integer_of<int64_t>(text.substr(0, point));
  if (number.value_or(-1) < 0) return std::nullopt;
  text.remove_prefix(point + 1);
  return number;
}

}  // namespace

ProcessName this_process() {
  static const std::string boot = boot_id(), host = host_name();
  const int64_t number = ::getpid();
  return {number, start_of(number), boot, host};
}

std::string to_string(const ProcessName& process) {
  return fmt::format("{}.{}.{}.{}", process.number, process.started, process.boot, process.host);
}

std::optional<ProcessName> parse_process(std::string_view text) {
  const auto number = take_number(text), started = take_number(text);
  const size_t point = text.find('.');
  if (!number || !started || point == std::string_view::npos || point + 1 == text.size()) return std::nullopt;
  return ProcessName{*number, *started, std::string(text.substr(0, point)),
                     std::string(text.substr(point + 1))};
}

ProcessState state_of(const ProcessName& process) {
  const ProcessName here = this_process();
  if (process.host != here.host) return ProcessState::kUnknown;
  if (process.boot != here.boot) return ProcessState::kGone;
  const bool exists = ::kill(static_cast<pid_t>(process.number), 0) == 0 || errno == EPERM;
  if (!exists || has_ended(process.number)) return ProcessState::kGone;
  // The number may have been given to another one since.
  const int64_t started = start_of(process.number);
  return started == 0 || process.started == 0 || started == process.started ? ProcessState::kRunning
                                                                            : ProcessState::kGone;
}

}  // namespace temper
