#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/schema.h"

namespace temper::recipes {

enum class ChunkMemory { kHost, kDevice };  // where chunks lie: the CPU's memory, or that of the run's device
enum class OnSyncError { kStop, kContinue };

// The configuration's group `exchange`: another process of this machine that gets the weights as they are
// trained (docs/weight_exchange.md).
struct ExchangeConfig {
  std::string to;  // the socket; "": none
  int64_t every_steps = 1;
  bool check_sync = false;
  std::optional<ChunkMemory> memory = {};  // none: the run's device's
  int64_t chunk_mib = 64;
  double deadline_seconds = 60;
  OnSyncError on_error = OnSyncError::kStop;
};

void describe(config::Schema& s, ExchangeConfig& c);

}  // namespace temper::recipes
