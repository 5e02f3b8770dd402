#include "parallel/same_on_all_ranks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "base/waited.h"
#include "collectives/at_root.h"
#include "collectives/hosts.h"
#include "version.h"

namespace temper::parallel {
namespace {

std::string first_difference(const std::string& a, const std::string& b) {
  size_t begin_a = 0, begin_b = 0;
  while (begin_a < a.size() || begin_b < b.size()) {
    const size_t end_a = std::min(a.find('\n', begin_a), a.size()),
                 end_b = std::min(b.find('\n', begin_b), b.size());
    const std::string line_a = a.substr(std::min(begin_a, a.size()), end_a - std::min(begin_a, a.size())),
                      line_b = b.substr(std::min(begin_b, b.size()), end_b - std::min(begin_b, b.size()));
    if (line_a != line_b) return fmt::format("'{}' and '{}'", line_a, line_b);
    begin_a = end_a + 1;
    begin_b = end_b + 1;
  }
  return "nothing";
}

// Network disks may take a moment.
bool appears(const std::string& path) {
  constexpr double kSeconds = 5;
  Waited waited;
  while (!exists(path)) {
    if (waited.seconds() > kSeconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

}  // namespace

void check_same_on_all_ranks(collectives::Group& ranks, std::string_view what, const std::string& text) {
  if (ranks.is_alone()) return;
  const std::vector<std::string> all = ranks.gather_objects(what, text);
  std::vector<std::string> others;
  size_t last = 0;
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i] != all[0]) {
      others.push_back(collectives::with_host(ranks, static_cast<int>(i)));
      last = i;
    }
  if (others.empty()) return;
  fail("[ranks] {} {} another {} than rank 0: {}; all ranks must have the same",
       (others.size() == 1 ? "rank " : "ranks ") + join(others), others.size() == 1 ? "has" : "have", what,
       first_difference(all[0], all[last]));
}

void check_same_program(collectives::Group& ranks) {
  if (ranks.is_alone()) return;
  check_same_on_all_ranks(ranks, "program",
                          fmt::format("temper {} {}", TEMPER_VERSION, hash_file("/proc/self/exe")));
}

void check_shared_folder(collectives::Group& ranks, const std::string& folder) {
  if (!collectives::are_on_several_hosts()) return;
  const std::string mark = collectives::made_at_root(ranks, "a mark in the folder", [&] {
    const std::string path = join_path(folder, ".seen-by-all-ranks-" + to_string(this_process()));
    write_file(path, "");
    return path;
  });
  const auto seen = ranks.gather_objects("marks seen", appears(mark) ? "seen" : "");
  collectives::at_root(ranks, "the mark's end", [&] { remove_all(mark); });
  for (size_t rank = 0; rank < seen.size(); ++rank)
    if (seen[rank].empty())
      fail("[{}] rank {} does not see what rank {} writes there: all machines must share the output folder",
           folder, collectives::with_host(ranks, static_cast<int>(rank)), collectives::with_host(ranks, 0));
}

}  // namespace temper::parallel
