#pragma once
#include <optional>
#include <string>
#include <vector>

// The decisions of a selection of kernels, as reports show them.
namespace temper::ops {

// A kernel that was not chosen, and why.
struct PassedOver {
  std::string provider, reason;
};

// A default that is not the best kernel there is for this hardware.
struct Shortfall {
  std::string provider;  // the best one; empty where no kernel of the op is here that could be asked for it
  std::string reason;    // why it is not here, and what brings it
  std::string cost;      // of doing without, where it was measured
};

// One decision.
struct Choice {
  std::string op, field, provider;      // op and provider are empty where nothing here reads the field
  std::string written;                  // the name in the configuration; empty: left out
  bool fallback = false;                // left out, and what the configuration names for all such fields
  std::string preferred;                // left out, and tried first for this reason
  std::string modules;                  // the pattern of an override; empty: everywhere else
  std::vector<PassedOver> passed_over;  // better ones that cannot run here
  std::vector<PassedOver> others;    // that could have been written instead; a reason where they cannot run
  std::vector<std::string> tilings;  // of kernels that work in on-chip memory
  std::vector<std::string> passes;   // of other kernels: "forward of cudnn"
  std::optional<Shortfall> shortfall = {};
};

// In a sentence, for a choice that has one.
std::string describe_shortfall(const Choice& choice);
// Throws where a choice has one: what runs do with `model.strict_kernels`.
void refuse_shortfalls(const std::vector<Choice>& choices);

}  // namespace temper::ops
