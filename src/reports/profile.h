#pragma once
#include <string>
#include <vector>

#include "base/tracing/trace.h"

namespace temper::reports {

// What the machine can do; 0 where it is not known.
struct MachinePeak {
  double flops = 0;             // per second, of matrix products
  double bytes_per_second = 0;  // of memory
};

// Spans of one name, added up. The limit is the shorter of the times that its work would take at the peak.
struct ProfileLine {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // without the spans inside it
  trace::Work work;
  // What it reaches of the limit that binds it, products or memory; below 0 where nothing is known.
  double fraction(const MachinePeak& peak) const;
  bool bound_by_memory(const MachinePeak& peak) const;
};

// By name, the longest first. Spans without work that others fill are left with what is their own.
std::vector<ProfileLine> sum_up(const std::vector<trace::Event>& events);

// A table: calls and milliseconds a step, share of all time, GFLOP/s, GB/s, and the fraction of the limit.
std::string describe(const std::vector<ProfileLine>& lines, int64_t steps, const MachinePeak& peak);

}  // namespace temper::reports
