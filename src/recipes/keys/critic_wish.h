#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "weights/lora.h"

namespace temper::recipes {

// What a recipe wants of a critic.
struct CriticWish {
  std::string folder;                   // that it starts from
  double lr = 0;                        // constant
  double clip = 0;                      // of its values (training/objectives/value_learning.h)
  int64_t warmup_updates = 0;           // the first so many updates of the run are the critic's alone
  std::optional<LoraConfig> lora = {};  // what is trained of it beside its head; nothing: all of it
};

}  // namespace temper::recipes
