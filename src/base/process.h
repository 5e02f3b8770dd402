#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace temper {

// A process among those of all machines that share a disk: its number means nothing on another host, and is
// given to another process some time later.
struct ProcessName {
  int64_t number = 0;   // of the process
  int64_t started = 0;  // in the system's ticks since it booted; 0: unknown
  std::string boot;     // 8 digits of the system's boot id; "0" where there is none
  std::string host;     // of letters, digits, '.' and '_'; with 4 digits of the machine's id behind a '_'
  bool operator==(const ProcessName&) const = default;
};

// This one; another after a fork.
ProcessName this_process();

// "1234.567890.0f3a99c1.node7_12ab", without '-' and '/'.
std::string to_string(const ProcessName& process);
std::optional<ProcessName> parse_process(std::string_view text);

// kUnknown: a process of another host, which cannot be seen from here.
enum class ProcessState { kRunning, kGone, kUnknown };
ProcessState state_of(const ProcessName& process);

}  // namespace temper
