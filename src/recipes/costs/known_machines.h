#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "recipes/costs/machine.h"

namespace temper::recipes {

// What is known of a kind of machine without having it, for matrix multiplications in bfloat16: "h100",
// "h200", "a100", "b200", "l40s". Speeds are shares of what the makers publish; the shares are those that
// were measured on H200 (docs/lab/training_step.md, moe.md, hybrids.md, ranks.md). An unknown name is an
// Error with the list.
Machine known_machine(std::string_view name);
std::vector<std::string> known_machine_names();

// What is known of a device that is here, by its name; of a CPU its peaks are measured, which takes half a
// second. An Error where nothing is.
Machine machine_of(const HardwareFacts& facts, DType dtype);

}  // namespace temper::recipes
