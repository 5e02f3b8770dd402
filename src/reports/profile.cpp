#include "reports/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace temper::reports {
namespace {

double limit_of(double work, double peak) { return peak > 0 ? work / peak : 0; }

std::string or_dash(double value, const char* format) {
  return value > 0 ? fmt::format(fmt::runtime(format), value) : "-";
}

}  // namespace

double ProfileLine::fraction(const MachinePeak& peak) const {
  const double limit =
      std::max(limit_of(work.flops, peak.flops), limit_of(work.bytes, peak.bytes_per_second));
  return limit > 0 && seconds > 0 ? limit / seconds : -1;
}

bool ProfileLine::bound_by_memory(const MachinePeak& peak) const {
  return limit_of(work.bytes, peak.bytes_per_second) > limit_of(work.flops, peak.flops);
}

std::vector<ProfileLine> sum_up(const std::vector<trace::Event>& events) {
  std::map<std::string, ProfileLine> by_name;
  for (const trace::Event& event : events) {
    ProfileLine& line = by_name[event.name];
    line.name = event.name;
    ++line.calls;
    line.seconds += event.self;
    line.work.flops += event.work.flops;
    line.work.bytes += event.work.bytes;
    line.work.sent += event.work.sent;
  }
  std::vector<ProfileLine> lines;
  for (auto& [name, line] : by_name) lines.push_back(std::move(line));
  std::stable_sort(lines.begin(), lines.end(),
                   [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
  return lines;
}

std::string describe(const std::vector<ProfileLine>& lines, int64_t steps, const MachinePeak& peak) {
  double all = 0;
  for (const ProfileLine& line : lines) all += line.seconds;
  const auto per_step = static_cast<double>(std::max<int64_t>(steps, 1));
  std::string out = fmt::format("{:<24} {:>8} {:>10} {:>7} {:>10} {:>8} {:>9}\n", "span", "calls",
                                "ms a step", "share", "GFLOP/s", "GB/s", "of limit");
  for (const ProfileLine& line : lines) {
    const double fraction = line.fraction(peak);
    const std::string of_limit =
        fraction < 0 ? "-"
                     : fmt::format("{:.0f} % {}", 100 * fraction, line.bound_by_memory(peak) ? "mem" : "mul");
    out += fmt::format("{:<24} {:>8.1f} {:>10.3f} {:>5.1f} % {:>10} {:>8} {:>9}\n", line.name,
                       static_cast<double>(line.calls) / per_step, 1e3 * line.seconds / per_step,
                       all > 0 ? 100 * line.seconds / all : 0,
                       or_dash(line.work.flops / line.seconds / 1e9, "{:.1f}"),
                       or_dash((line.work.bytes + line.work.sent) / line.seconds / 1e9, "{:.1f}"), of_limit);
  }
  return out;
}

}  // namespace temper::reports
