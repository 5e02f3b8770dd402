#include "recipes/keys/exchange_keys.h"

namespace temper::recipes {

void describe(config::Schema& s, ExchangeConfig& c) {
  s.field(
       "to", c.to,
       "The socket of the process that gets the weights ('temper batch --weights-from'). Omitted: none does.")
      .path();
  s.field(
       "every_steps", c.every_steps,
       "The number of updates between two syncs; 0 sends at the end only. The last weights are always sent.")
      .at_least(0);
  s.field("check_sync", c.check_sync,
          "Whether hashes of all parameters and buffers of both processes are compared after each sync.");
  s.choice(
      "memory", c.memory, {{"host", ChunkMemory::kHost}, {"device", ChunkMemory::kDevice}},
      "The memory that weights travel through: the CPU's (host), or the device's, which the other process "
      "must be on, too. Omitted: that of the run's device.");
  s.field("chunk_mib", c.chunk_mib, "The size of this memory in MiB.").at_least(1).at_most(4096);
  s.field("deadline_seconds", c.deadline_seconds,
          "The longest time to wait for an answer; the other process answers between two of its passes.")
      .above(0)
      .at_most(86400);
  s.choice("on_error", c.on_error, {{"stop", OnSyncError::kStop}, {"continue", OnSyncError::kContinue}},
           "What happens when a sync fails: stop saves a checkpoint and ends the run, continue warns and "
           "trains on until the next sync.");
}

}  // namespace temper::recipes
