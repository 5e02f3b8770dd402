#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "weights/lora.h"

namespace temper::recipes {

// A critic as the recipe configures it.
struct CriticSettings {
  std::string folder;                   // that it starts from
  double lr = 0;                        // constant
  double clip = 0;                      // of its values (training/objectives/value_learning.h)
  int64_t warmup_updates = 0;           // how many updates at the start train the critic only
  std::optional<LoraConfig> lora = {};  // what is trained in addition to its head; nothing: all of it
};

}  // namespace temper::recipes
