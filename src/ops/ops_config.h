#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace temper::ops {

using FieldValues = std::map<std::string, std::string>;  // field, without "_implementation" → name

// Kernels to try first, and why: what a choice of them is reported with.
struct Preferences {
  FieldValues kernels = {};
  std::string because = "the fastest measured on this machine";  // ops/measure.h
};

// What the user wrote under model.ops_implementation. Fields left out are not in the maps.
struct OpsConfig {
  FieldValues written = {};
  std::map<std::string, FieldValues> overrides =
      {};                      // by module pattern: {"layers.0-3.*": {rms_norm: eager}}
  std::string fallback = {};   // for every field that was left out; empty: the best for the hardware
  Preferences preferred = {};  // tried first for fields that were left out
  std::vector<std::string> without_fallback = {};  // fields that get the best for the hardware all the same
  bool strict = false;  // a default that is not the best there is for the hardware is an error
};

// A configuration that runs everywhere: eager, but attention by the best kernel that can run, because eager
// attention holds a matrix of tokens × tokens. `written` are fields to choose otherwise.
OpsConfig all_eager(FieldValues written = {});

// Whether a pattern names a module: segments between dots are equal, `*`, or a range of numbers (0-3); a last
// segment `*` also matches everything below.
bool module_matches(std::string_view pattern, std::string_view module);

}  // namespace temper::ops
