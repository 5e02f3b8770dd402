#pragma once
#include <memory>
#include <span>

#include "exchange/connection.h"
#include "exchange/element_order.h"
#include "exchange/fingerprint.h"
#include "exchange/shared_memory.h"

namespace temper::exchange {

constexpr int kProtocol = 1;  // of messages; docs/weight_exchange.md

struct SendOptions {
  Names names = Names::kPacked;
  int64_t chunk_bytes = int64_t{64} << 20;  // of shared memory
  double deadline_seconds = 60;             // for each answer of the receiver
  // Of a trainer of several ranks each sends what it owns, one after the other, in any order.
  int rank = 0, ranks = 1;
};

struct SendResult {
  int64_t bytes = 0, chunks = 0;
  double seconds = 0;                // from begin() to the answer to finish()
  bool published = false;            // not yet where other ranks have still to send
  int64_t num_unknown = 0;           // names that the receiver does not know
  std::vector<std::string> unknown;  // the first of them
};

// Sends weights to a Receiver of the same machine: begin(), add() for every tensor, finish(). Values travel
// in chunks of shared memory, one at a time, which lives until the receiver has answered. An Error of any
// call ends the sync, and the receiver serves its old weights.
class Sender {
 public:
  // Connects and compares protocol, machine and model. An Error says what does not fit, or that nobody
  // listens.
  Sender(const std::string& socket, const WeightTable& table, const SendOptions& options = {});

  // `version` is how answers will name these weights. All ranks give the same.
  void begin(int64_t version);
  // A whole tensor [shape], or some of its elements [elements], those of `runs` in their order; on the CPU.
  void add(const std::string& name, const Tensor& tensor);
  void add(const std::string& name, const Shape& whole, std::span<const Slice> runs, const Tensor& elements);
  SendResult finish();
  // What the receiver holds now.
  std::map<std::string, ParameterHash> hashes();

 private:
  Json ask(const Json& message, int file = -1);
  void flush();

  const SendOptions options_;
  Connection connection_;
  std::unique_ptr<SharedMemory> chunk_;
  int64_t filled_ = 0;  // bytes of the chunk
  Json::Array pieces_;  // that lie in it
  double begun_ = 0;
  bool failed_ = false;
  SendResult result_;
};

}  // namespace temper::exchange
