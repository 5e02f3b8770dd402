#include "device/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/files.h"

namespace temper::device {
namespace {

std::string text_of(const std::string& path) {
  try {
    return exists(path) ? read_file(path) : "";
  } catch (const Error&) {
    return "";  // of a group that ended, or is not ours to see
  }
}

// The number behind `key` in a file of /proc or of a control group, at the beginning of a line.
std::optional<int64_t> number_in(const std::string& text, std::string_view key) {
  size_t at = 0;
  while (text.compare(at, key.size(), key) != 0) {
    at = text.find('\n', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  const size_t digit = text.find_first_not_of(" \t", at + key.size());
  if (digit == std::string::npos || text[digit] < '0' || text[digit] > '9') return std::nullopt;  // "max"
  return std::strtoll(text.c_str() + digit, nullptr, 10);
}

class Least {
 public:
  explicit Least(int64_t bytes) : found_{bytes, ""} {}
  void take(int64_t bytes, const std::string& name) {
    if (bytes < found_.bytes) found_ = {std::max<int64_t>(bytes, 0), name};
  }
  HostMemory found() const { return found_; }

 private:
  HostMemory found_;
};

struct Names {
  const char *limit, *used, *cache;  // of files, and of a line in memory.stat
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file "};

// Of one group and of those above it. A container may see its own group as the root.
void take_groups(Least& least, const std::string& root, std::string path, const Names& names) {
  for (;;) {
    const std::string folder = path == "/" ? root : root + path;
    const auto limit = number_in(text_of(join_path(folder, names.limit)), ""),
               used = number_in(text_of(join_path(folder, names.used)), "");
    if (limit && used) {
      const int64_t cache = number_in(text_of(join_path(folder, "memory.stat")), names.cache).value_or(0);
      least.take(*limit - *used + cache, fmt::format("cgroup {} ({})", path, names.limit));
    }
    if (path == "/") return;
    path.resize(std::max<size_t>(1, path.rfind('/')));
  }
}

void take_all_groups(Least& least, const std::string& proc, const std::string& cgroups) {
  const std::string text = text_of(join_path(proc, "self/cgroup"));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1)),
                      path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (controllers == ",,")
      take_groups(least, cgroups, path, kVersion2);
    else if (controllers.find(",memory,") != std::string::npos)
      take_groups(least, join_path(cgroups, "memory"), path, kVersion1);
  }
}

// What is left of a limit, of which the line of /proc/self/status says how much is used.
std::optional<int64_t> left_of(int resource, const std::string& status, std::string_view key) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  const int64_t used = number_in(status, key).value_or(0) * 1024;
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
  return std::max<int64_t>(most - used, 0);
}

}  // namespace

HostMemory host_memory(const std::string& proc, const std::string& cgroups) {
  const auto kib = number_in(text_of(join_path(proc, "meminfo")), "MemAvailable:");
  Least least(kib ? *kib * 1024 : ::sysconf(_SC_PHYS_PAGES) * int64_t{::sysconf(_SC_PAGE_SIZE)});
  take_all_groups(least, proc, cgroups);
  const std::string status = text_of("/proc/self/status");
  if (const auto left = left_of(RLIMIT_AS, status, "VmSize:")) least.take(*left, "ulimit -v");
  if (const auto left = left_of(RLIMIT_DATA, status, "VmData:")) least.take(*left, "ulimit -d");
  return least.found();
}

HostMemory host_memory() { return host_memory("/proc", "/sys/fs/cgroup"); }

std::string named_limit() noexcept {
  try {
    const std::string by = host_memory().limited_by;
    return by.empty() ? "" : " (limited by " + by + ")";
  } catch (...) {
    return "";
  }
}

int64_t resident_bytes() { return number_in(text_of("/proc/self/status"), "VmRSS:").value_or(0) * 1024; }

int64_t free_addresses() { return left_of(RLIMIT_AS, text_of("/proc/self/status"), "VmSize:").value_or(-1); }

bool counts_writable_memory() { return left_of(RLIMIT_DATA, "", "VmData:").has_value(); }

}  // namespace temper::device
