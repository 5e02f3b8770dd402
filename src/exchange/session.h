#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "exchange/chunk.h"
#include "exchange/incoming_weights.h"
#include "exchange/mailbox.h"
#include "layers/adapter.h"

// What a receiver knows of a sync and of its connections. Times are of the receiver's PausedClock.
namespace temper::exchange {

// One sync, which may take a connection of each rank.
struct Sync {
  std::optional<std::string> name;           // of an adapter; none: the model
  std::unique_ptr<layers::Adapter> adapter;  // that comes
  std::optional<IncomingWeights> weights;    // none once it has ended
  std::string names;                         // the kind of them
  int64_t version = 0;
  int ranks = 1;
  std::set<int> begun;      // ranks
  int finished = 0;         // ranks
  bool direct = false;      // in place of weights that passes read
  double began_at = 0;      // seconds_now()
  double last_message = 0;  // when it was answered
  std::string ended;        // why it ended without having come whole; empty: it has not

  // Whether what begins cannot be a part of it: newer weights, another trainer, or a rank whose process has
  // been started again.
  bool is_replaced_by(int64_t new_version, int new_ranks, int rank) const {
    return new_version > version || new_ranks != ranks || begun.contains(rank);
  }
};

// One connection.
struct Session {
  Session(int file, double now) : socket(file), since(now) {}

  device::Descriptor socket;
  Inbox in{"the sender"};
  Outbox out{"the sender"};
  double since;       // it connected, its last message was answered, or its next one began to come
  bool ends = false;  // once its last answer is out

  bool greeted = false;
  Device memory = {};                    // where chunks lie
  std::optional<Json> begin;             // behind which the block of a device's memory has still to come
  std::unique_ptr<IncomingChunk> chunk;  // of the last begin
  std::shared_ptr<Sync> sync;            // that it has begun and not finished

  // Whether a sync needs it.
  bool is_sending() const { return begin || (sync && sync->ended.empty()); }
};

}  // namespace temper::exchange
