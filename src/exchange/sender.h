#pragma once
#include <memory>
#include <span>

#include "exchange/adapters.h"
#include "exchange/chunk.h"
#include "exchange/connection.h"
#include "exchange/element_order.h"
#include "exchange/fingerprint.h"
#include "exchange/rounding.h"

namespace temper::exchange {

constexpr int kProtocol = 3;  // of messages; docs/weight_exchange.md

struct SendOptions {
  Names names = Names::kPacked;
  int64_t chunk_bytes = int64_t{64} << 20;
  Device memory = {};            // where chunks lie; of a device only processes that reach it can read them
  double deadline_seconds = 60;  // for each answer of the receiver
  // Of a trainer of several ranks each sends what it owns, one after the other, in any order.
  int rank = 0, ranks = 1;
  // Of the model. Those of values that pass have to be the receiver's, too, and their scales (scales_of) are
  // sent with the weights. Null: the model has none.
  const quantizers::Quantizers* quantizers = nullptr;
};

struct SendResult {
  int64_t bytes = 0, chunks = 0;
  double seconds = 0;                // from begin() to the answer to finish()
  bool published = false;            // not yet where other ranks have still to send
  int64_t num_unknown = 0;           // names that the receiver does not know
  std::vector<std::string> unknown;  // the first of them
};

// Sends weights to a Receiver of the same machine: begin(), add() for every tensor, finish(). Values travel
// in chunks, one at a time, of memory that both processes map and that lives until the receiver has answered.
// An Error of any call ends the sync; what that means for the receiver is its choice (exchange::Loading).
class Sender {
 public:
  // Connects and compares protocol, machine and model. An Error says what does not fit, or that no
  // receiver listens.
  Sender(const std::string& socket, const WeightTable& table, const SendOptions& options = {});

  // `version` is how answers will name these weights. All ranks give the same. Of an adapter its note, where
  // what follows are the adapter's parameters, by packed names.
  void begin(int64_t version, const std::optional<AdapterNote>& adapter = {});
  // A whole tensor [shape], or some of its elements [elements], those of `runs` in their order; on any
  // device.
  void add(const std::string& name, const Tensor& tensor);
  void add(const std::string& name, const Shape& whole, std::span<const Slice> runs, const Tensor& elements);
  SendResult finish();
  // What the receiver holds now, of the model or of an adapter.
  std::map<std::string, ParameterHash> hashes(const std::optional<std::string>& adapter = {});
  Device memory() const { return options_.memory; }
  const std::string& receiver() const { return receiver_; }  // which process it is (base/process.h)

 private:
  Json ask(const Json& message, const OutgoingChunk* chunk = nullptr);
  void flush();

  const SendOptions options_;
  Connection connection_;
  std::string receiver_;
  std::unique_ptr<OutgoingChunk> chunk_;
  int64_t filled_ = 0;  // bytes of the chunk
  Json::Array pieces_;  // that lie in it
  double begun_ = 0;
  bool failed_ = false;
  SendResult result_;
};

}  // namespace temper::exchange
