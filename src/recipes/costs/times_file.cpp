#include "recipes/costs/times_file.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "recipes/costs/known_machines.h"

namespace temper::recipes {
namespace {

constexpr const char *kFormat = "temper times", *kFlops = "flops", *kBytes = "bytes";
constexpr int kVersion = 1;

Json::Array speeds_of(const SpeedCurve& curve) {
  Json::Array speeds;
  for (const SpeedCurve::Point& point : curve.points)
    speeds.emplace_back(Json::Array{point.amount, point.per_second});
  return speeds;
}

Json link_json(const Link& link) {
  return Json::Object{
      {"bytes_per_second", link.bytes_per_second}, {"latency", link.latency}, {"slowdown", link.slowdown}};
}

// A place in a file, for messages.
class Place {
 public:
  Place(const std::string& file, std::string key, const Json& value)
      : file_(file), key_(std::move(key)), value_(value) {}

  [[noreturn]] void refuse(const std::string& expected) const {
    fail("[{}] {}: expected {}; measure again with temper plan --measure {}", file_, key_, expected, file_);
  }
  Place at(const std::string& key) const {
    if (!value_.is_object()) refuse("an object");
    const Json* const found = value_.find(key);
    const std::string path = key_.empty() ? key : key_ + "." + key;
    if (found == nullptr)
      fail("[{}] {} is missing; measure again with temper plan --measure {}", file_, path, file_);
    return {file_, path, *found};
  }
  const std::string& text() const {
    if (!value_.is_string()) refuse("a string");
    return value_.as_string();
  }
  double positive(double least = 0) const {
    if (!value_.is_number()) refuse("a number");
    const double number = value_.as_double();
    if (!std::isfinite(number) || number < least || (least == 0 && number == 0)) refuse("a number above 0");
    return number;
  }
  double share() const {
    if (!value_.is_number() || value_.as_double() < 0 || value_.as_double() > 1)
      refuse("a number from 0 to 1");
    return value_.as_double();
  }
  template <class F>
  void for_members(const F& f) const {
    if (!value_.is_object()) refuse("an object");
    for (const auto& [key, value] : value_.as_object()) f(key, Place(file_, key_ + "." + key, value));
  }
  SpeedCurve curve() const {
    SpeedCurve curve;
    if (!value_.is_array() || value_.as_array().empty()) refuse("a list of pairs of numbers");
    for (const Json& pair : value_.as_array()) {
      if (!pair.is_array() || pair.as_array().size() != 2) refuse("a list of pairs of numbers");
      const Place amount(file_, key_, pair.as_array()[0]), speed(file_, key_, pair.as_array()[1]);
      const SpeedCurve::Point point{amount.positive(), speed.positive()};
      if (!curve.points.empty() && curve.points.back().amount >= point.amount) refuse("amounts that grow");
      curve.points.push_back(point);
    }
    return curve;
  }

 private:
  const std::string& file_;
  std::string key_;
  const Json& value_;
};

// A GPU by that name on this machine.
std::optional<HardwareFacts> gpu_here(const std::string& name) {
  try {
    const HardwareFacts facts = detect_hardware("cuda");
    if (facts.name == name) return facts;
  } catch (const Error&) {
    // None can be used.
  }
  return std::nullopt;
}

// Of a CPU the file is for the one that measured it.
Machine base_of(const std::string& path, const Place& machine, DType dtype) {
  const std::string &name = machine.at("name").text(), &kind = machine.at("hardware").text();
  if (kind == hardware::kCpu) {
    const HardwareFacts here = detect_cpu();
    if (here.name != name)
      fail(
          "[{}] was measured on '{}', and this machine is '{}'; measure here with temper plan --measure FILE",
          path, name, here.name);
    return machine_of(here, dtype);
  }
  for (const std::string& id : known_machine_names())
    if (Machine known = known_machine(id); known.facts.name == name) return known;
  if (const std::optional<HardwareFacts> here = gpu_here(name)) {
    Machine machine_here;
    machine_here.facts = *here;
    machine_here.host = {.bytes_per_second = 20e9, .latency = 20e-6, .slowdown = 0.5};  // PCIe
    machine_here.network = {.bytes_per_second = 10e9, .latency = 30e-6, .slowdown = 0.2};
    return machine_here;
  }
  fail("[{}] was measured on '{}'; nothing else is known here of such a machine; use the file there", path,
       name);
}

void read_link(const Place& links, const std::string& name, Link& link) {
  links.for_members([&](const std::string& key, const Place& found) {
    if (key != name) return;
    link = {.bytes_per_second = found.at("bytes_per_second").positive(),
            .latency = found.at("latency").positive(),
            .slowdown = found.at("slowdown").share(),
            .source = Source::kMeasured};
  });
}

void read_ops(const Place& ops, Machine& machine) {
  ops.for_members([&](const std::string& name, const Place& op) {
    const std::string& unit = op.at("unit").text();
    if (unit != kFlops && unit != kBytes) op.at("unit").refuse("flops or bytes");
    machine.ops[name] = {.of_flops = unit == kFlops, .curve = op.at("speeds").curve()};
  });
  for (const std::string_view needed : {Machine::kProducts, Machine::kMoves})
    if (!machine.ops.contains(needed)) ops.at(std::string(needed));
}

}  // namespace

void write_times(const std::string& path, const Machine& measured) {
  Json::Object ops, links;
  for (const auto& [name, speed] : measured.ops)
    ops.emplace_back(
        name, Json::Object{{"unit", speed.of_flops ? kFlops : kBytes}, {"speeds", speeds_of(speed.curve)}});
  if (measured.host.source == Source::kMeasured) links.emplace_back("host", link_json(measured.host));
  if (measured.network.source == Source::kMeasured)
    links.emplace_back("network", link_json(measured.network));
  const Json file = Json::Object{
      {"format", kFormat},
      {"version", kVersion},
      {"machine", Json::Object{{"name", measured.facts.name}, {"hardware", measured.facts.hardware}}},
      {"dtype", std::string(to_string(measured.dtype))},
      {"memory_bandwidth", measured.memory_bandwidth},
      {"launch", measured.launch},
      {"step_share", measured.step_share},
      {"ops", std::move(ops)},
      {"links", std::move(links)}};
  write_file(path, file.dump(1) + "\n");
}

Machine read_times(const std::string& path) {
  const Json json = Json::parse_file(path);
  const Place file(path, "", json);
  if (!json.is_object() || json.find("format") == nullptr || *json.find("format") != Json(kFormat))
    fail("[{}] is no file of times; write one with temper plan --measure FILE", path);
  const Json* const version = json.find("version");
  if (version == nullptr || *version != Json(kVersion))
    fail("[{}] has version {}, and this program reads {}; measure again with temper plan --measure {}", path,
         version == nullptr ? "none" : version->dump(), kVersion, path);
  const std::optional<DType> dtype = dtype_from_string(file.at("dtype").text());
  if (!dtype || !is_float(*dtype)) file.at("dtype").refuse("float32 or bfloat16");
  Machine machine = base_of(path, file.at("machine"), *dtype);
  machine.dtype = *dtype;
  machine.memory_bandwidth = file.at("memory_bandwidth").positive();
  machine.launch = file.at("launch").positive();
  machine.step_share = file.at("step_share").positive();
  machine.ops.clear();
  read_ops(file.at("ops"), machine);
  machine.ops_source = Source::kMeasured;
  read_link(file.at("links"), "host", machine.host);
  read_link(file.at("links"), "network", machine.network);
  return machine;
}

}  // namespace temper::recipes
