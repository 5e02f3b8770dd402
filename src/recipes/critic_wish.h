#pragma once
#include <cstdint>
#include <string>

namespace temper::recipes {

// What a recipe wants of a critic.
struct CriticWish {
  std::string folder;          // that it starts from
  double lr = 0;               // constant
  double clip = 0;             // of its values (training/value_learning.h)
  int64_t warmup_updates = 0;  // the first so many updates of the run are the critic's alone
};

}  // namespace temper::recipes
