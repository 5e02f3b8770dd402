#include "recipes/commands/measure_times.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "collectives/at_root.h"
#include "collectives/device_group.h"
#include "device/facts.h"
#include "recipes/commands/measured_links.h"
#include "recipes/commands/measured_ops.h"
#include "recipes/costs/times_file.h"

namespace temper::recipes {
namespace {

// Of several ranks each has a device of its own.
std::string own_device(const MeasureOptions& options, const collectives::Group& ranks) {
  if (ranks.is_alone() || options.device == hardware::kCpu) return options.device;
  if (options.device.find(':') != std::string::npos)
    fail("[--device] is {}, but each of {} ranks has a device of its own; write it without a number",
         options.device, ranks.size());
  return fmt::format("{}:{}", options.device, ranks.on_machine().place);
}

// Ranks that share a machine's cores were all measuring: its speeds are the sums of theirs.
void put_together(Machine& machine, int ranks) {
  machine.shares_cores = true;
  machine.memory_bandwidth *= ranks;
  for (auto& [name, speed] : machine.ops)
    for (SpeedCurve::Point& point : speed.curve.points) point.per_second *= ranks;
}

std::string describe_link(const char* name, const Link& link) {
  if (link.source != Source::kMeasured) return "";
  return fmt::format(
      "{:<14} {:.4g} GB/s, {:.3g} us; overlapping computation loses {:.0f} % of a collective's time\n", name,
      link.bytes_per_second / 1e9, link.latency * 1e6, 100 * link.slowdown);
}

std::string describe(const Machine& machine) {
  std::string text = fmt::format("machine        {}, {}\n", machine.facts.name, to_string(machine.dtype));
  const OpSpeed& products = machine.ops.find(Machine::kProducts)->second;
  text += fmt::format("products       {:.4g} GFLOP/s for large ones, {:.4g} for the smallest\n",
                      products.curve.points.back().per_second / 1e9,
                      products.curve.points.front().per_second / 1e9);
  text += fmt::format("memory         a copy reads and writes {:.4g} GB/s\n", machine.memory_bandwidth / 1e9);
  return text + describe_link("one host", machine.host) + describe_link("other hosts", machine.network);
}

}  // namespace

std::string measure_times(const MeasureOptions& options, collectives::Group& ranks) {
  const double begin = seconds_now();
  collectives::at_root(ranks, "the folder of times", [&] {
    const std::string folder = parent_path(options.file);
    if (!folder.empty() && !is_directory(folder))
      fail("[--measure] '{}' is no folder; make it first", folder);
  });
  Machine machine;
  machine.facts = detect_hardware(own_device(options, ranks));
  machine.dtype = options.dtype;
  const auto devices = collectives::device_group(ranks, machine.facts.device);
  collectives::Group& group = devices ? *devices : ranks;
  measure_ops(machine);
  if (machine.facts.hardware == hardware::kCpu) put_together(machine, ranks.on_machine().ranks);
  measure_links(group, machine);
  collectives::at_root(ranks, "the file of times", [&] { write_times(options.file, machine); });
  return fmt::format("{}{} written after {:.0f} s\n", describe(machine), options.file, seconds_now() - begin);
}

}  // namespace temper::recipes
