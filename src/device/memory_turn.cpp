#include "device/memory_turn.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace temper {
namespace {

// Whose turn it is, for errors of those that do not know of it.
struct Turns {
  std::mutex mutex;
  std::map<std::pair<const Pool*, MemoryTag>, std::string> whose;
};

Turns& turns() {
  static Turns& instance = *new Turns;  // regions may wake while the program ends
  return instance;
}

void begin(const Pool& pool, MemoryTag tag, const std::string& whose) {
  const std::lock_guard lock(turns().mutex);
  turns().whose[{&pool, tag}] = whose;
}

void end(const Pool& pool, MemoryTag tag) {
  const std::lock_guard lock(turns().mutex);
  turns().whose.erase({&pool, tag});
}

// The copies must fit into the CPU's memory together with all other uses; what was taken for them before
// counts as free.
void check_host(const Pool& pool, const std::string& whose, const std::vector<Sleeper>& sleepers,
                int64_t kept) {
  int64_t free = available_host_bytes() / 100 * 95;
  for (const auto& [tag, mode] : sleepers)
    if (mode == PauseMode::kKeep) free += pool.usage()[static_cast<size_t>(tag)].backup;
  if (kept <= free) return;
  std::vector<std::string> all, fit;
  int64_t left = free;
  for (const auto& [tag, mode] : sleepers) {
    const int64_t bytes = mode == PauseMode::kKeep ? pool.usage()[static_cast<size_t>(tag)].live : 0;
    const std::string name = fmt::format("{} ({})", to_string(tag), format_bytes(bytes));
    if (mode == PauseMode::kKeep) all.push_back(name);
    if (bytes > left) continue;
    left -= bytes;
    fit.push_back(name);
  }
  fail_resources(
      "[memory] during {} these sleep, and the CPU's memory keeps what is in them: {}. They need {} of it, "
      "and {} may be used. What would fit: {}",
      whose, join(all), format_bytes(kept), format_bytes(free),
      fit.empty() ? "none of them; let them stay awake" : join(fit) + " alone");
}

}  // namespace

MemoryTurn::MemoryTurn(Device device, std::string whose, const std::vector<Sleeper>& sleepers)
    : pool_(pool(device)), whose_(std::move(whose)) {
  const MemoryUsage usage = pool_.usage();
  for (const auto& [tag, mode] : sleepers)
    if (mode == PauseMode::kKeep) kept_bytes_ += usage[static_cast<size_t>(tag)].live;
  if (!only_counts(device)) check_host(pool_, whose_, sleepers, kept_bytes_);
  try {
    for (const auto& [tag, mode] : sleepers) {
      pool_.pause(tag, mode);
      begin(pool_, tag, whose_);
      asleep_.insert(std::lower_bound(asleep_.begin(), asleep_.end(), tag), tag);
    }
  } catch (...) {
    wake();
    throw;
  }
}

MemoryTurn::~MemoryTurn() try {
  try {
    wake();
  } catch (const Error& error) {
    log_warning(fmt::format("after {}: {}", whose_, error.what()));
  }
} catch (const std::bad_alloc&) {
  return;  // a destructor's handler would throw again
}

void MemoryTurn::wake() {
  while (!asleep_.empty()) wake(asleep_.front());
}

void MemoryTurn::wake(MemoryTag tag) {
  pool_.resume(tag);  // refuses a region that is awake
  end(pool_, tag);
  std::erase(asleep_, tag);
}

void require_awake(Device device, MemoryTag tag, std::string_view user) {
  const Pool& memory = pool(device);
  if (!memory.usage()[static_cast<size_t>(tag)].paused) return;
  fail("[memory] {} needs region '{}', which sleeps ({}); wake it first", user, to_string(tag),
       turn_of(memory, tag));
}

std::string turn_of(const Pool& pool, MemoryTag tag) {
  const std::lock_guard lock(turns().mutex);
  const auto found = turns().whose.find({&pool, tag});
  return found == turns().whose.end() ? std::string("it was paused") : "during " + found->second;
}

}  // namespace temper
