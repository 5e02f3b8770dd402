#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/tracing/trace.h"
#include "device/facts.h"
#include "recipes/costs/speed_curve.h"
#include "tensor/dtype.h"

namespace temper::recipes {

// Where a figure comes from: timed on a machine of this kind, or worked out from what its makers publish.
enum class Source { kComputed, kMeasured };

// How long an op's work takes: as its floating-point operations where it has any, otherwise as its bytes.
struct OpSpeed {
  bool of_flops = false;
  SpeedCurve curve;
};

// A way between devices. One collective takes `latency` and the bytes that leave a device at this speed.
struct Link {
  double bytes_per_second = 0;
  double latency = 0;  // seconds
  // Of the time of a collective that overlaps with computation the share that the computation loses: both
  // use the device's processors and memory.
  double slowdown = 0;
  Source source = Source::kComputed;
};

// How fast the devices of one kind are, and what joins them. Times are those of one dtype.
struct Machine {
  HardwareFacts facts;        // kernels are chosen for these; the name, and the memory of a device
  int devices_of_host = 8;    // that `host` joins; those of other hosts are reached by `network`
  bool shares_cores = false;  // the ranks of a host divide its speeds and its memory between them
  DType dtype = DType::kBF16;
  double peak_flops = 0;        // dense matrix multiplications per second, as published; measured on a CPU
  double memory_bandwidth = 0;  // bytes per second that a copy reads and writes together
  double launch = 0;            // seconds of the shortest op
  double step_share = 1;        // of a step, its ops' times are this; less where something else takes time
  // By the name that a profile shows; of "linear backward", where it is not there, "linear" stands in, and
  // for all others those of kProducts and kMoves.
  std::map<std::string, OpSpeed, std::less<>> ops;
  Source ops_source = Source::kComputed;
  Link host, network;

  static constexpr std::string_view kProducts = "products", kMoves = "moves";

  // Of one op: as long as the slower of its arithmetic and its memory takes.
  double seconds(std::string_view op, const trace::Work& work) const;
};

}  // namespace temper::recipes
