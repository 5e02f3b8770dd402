#pragma once
#include <cstdint>
#include <string>

// What memory of the machine this process may have.
namespace temper::device {

struct HostMemory {
  int64_t bytes = 0;       // free for new allocations
  std::string limited_by;  // "cgroup /a/b (memory.max)", "ulimit -v"; empty: what the machine has free
};

// The least of what the machine has free, what the control groups of this process leave (version 1 and 2, of
// it and of all above it, whose page caches count as free), and what getrlimit leaves (RLIMIT_AS,
// RLIMIT_DATA).
HostMemory host_memory();
// The same where these folders have the places of /proc and /sys/fs/cgroup. Limits of getrlimit are this
// process's.
HostMemory host_memory(const std::string& proc, const std::string& cgroups);

// " (limited by ulimit -v)", behind what such a limit leaves too little for; empty where no limit of this
// process does, or where that cannot be found out.
std::string named_limit() noexcept;

int64_t resident_bytes();  // of this process; 0: unknown

// Addresses that may still be reserved, whatever memory is behind them; -1: as many as there are.
int64_t free_addresses();
// Whether memory that may be written counts against a limit, with pages behind it or not (RLIMIT_DATA).
bool counts_writable_memory();

}  // namespace temper::device
