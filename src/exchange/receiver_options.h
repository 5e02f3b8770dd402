#pragma once
#include <cstdint>

#include "exchange/adapters.h"
#include "exchange/incoming_weights.h"

namespace temper::exchange {

struct ReceiverOptions {
  double deadline_seconds = 60;  // for each message of a sender, and of a sync that has begun
  Loading loading = Loading::kStaged;
  AdapterStore* adapters = nullptr;  // null: none are taken
  // Of the model: those of values that pass round by scales that come with the weights, and nothing before;
  // weights come as theirs have rounded them. Null: the model has none.
  quantizers::Quantizers* quantizers = nullptr;
  int64_t most_connections = 1024;  // beyond them the one that is idle longest is closed
};

}  // namespace temper::exchange
