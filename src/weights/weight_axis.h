#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace temper {

// An axis of a parameter, and how ranks divide it: the module that declares the parameter says both, and
// Layout applies them. Of an axis that is given by its name alone every rank has all.
struct WeightAxis {
  WeightAxis(const char* axis) : name(axis) {}

  // Tensor ranks have equal parts of it, of whole units: the entries of a head, which stay together.
  static WeightAxis divided(std::string name, int64_t unit = 1) { return {std::move(name), unit, false}; }
  // Of a first dimension: the entries of all experts above one another. Expert ranks have equal numbers of
  // experts; of each expert's entries tensor ranks have equal parts where there is a unit, otherwise all.
  static WeightAxis of_experts(std::string name, int64_t unit = 0) { return {std::move(name), unit, true}; }

  bool operator==(const WeightAxis&) const = default;

  std::string name;  // "vocab", "hidden", "heads*head_dim", …
  int64_t unit = 0;  // entries that tensor ranks do not part; 0: tensor ranks do not divide the axis
  bool divided_by_expert = false;

 private:
  WeightAxis(std::string axis, int64_t of_unit, bool by_expert)
      : name(std::move(axis)), unit(of_unit), divided_by_expert(by_expert) {}
};

}  // namespace temper
