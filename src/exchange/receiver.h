#pragma once
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "exchange/connection.h"
#include "exchange/shared_memory.h"
#include "exchange/staged_weights.h"

namespace temper::exchange {

struct ReceiverOptions {
  double deadline_seconds = 60;  // for each message of a sender, and for the next rank of a trainer
};

// Takes weights from senders of this machine (docs/weight_exchange.md), one sync at a time. A thread of its
// own collects them beside the old ones, while passes go on with these; take_new() makes them the store's,
// all at once. Whatever goes wrong before that leaves the store as it was, bit for bit, and is a warning here
// and an Error of the sender.
class Receiver {
 public:
  // Listens at the path of a socket. An Error where that cannot be, or the store cannot take weights
  // (StagedWeights). The store must outlive it.
  Receiver(const std::string& socket, layers::ParameterStore& parameters,
           const ReceiverOptions& options = {});
  // Senders that wait are refused.
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Between two passes, from the thread that makes them: publishes weights that have come whole. The reply
  // to their sender waits for it.
  struct Taken {
    int64_t version = 0;  // as the sender named it
    int64_t bytes = 0;    // as they were sent
    double seconds = 0;   // since the sender began
  };
  std::optional<Taken> take_new();

 private:
  // Of one connection.
  struct Session {
    bool greeted = false, begun = false;
    int rank = 0;
    std::shared_ptr<const SharedMemory> chunk;
  };
  // Of one sync, which may take a connection of each rank.
  struct Sync {
    Sync(const layers::ParameterStore& parameters, Names names) : weights(parameters, names) {}
    StagedWeights weights;
    int64_t version = 0;
    int ranks = 1;
    std::set<int> finished;
    double begun = 0;
    std::string names;
  };

  // receiver.cpp, all on the thread
  void run();
  bool wait_for_sender();
  void serve(Connection& connection);
  void refuse(Connection& connection, const Session& session, const std::exception& error);
  // receiver_messages.cpp: what is answered
  Json answer(Session& session, Connection::Message& message);
  Json hello(Session& session, const Json& message) const;
  Json begin(Session& session, Connection::Message& message);
  Json update(const Session& session, const Json& message);
  Json finish(Session& session);
  bool publish();
  Json hashes() const;

  layers::ParameterStore& parameters_;
  const ReceiverOptions options_;
  Listener listener_;
  int stop_ = -1;  // a descriptor that becomes readable
  std::unique_ptr<Sync> sync_;

  std::mutex mutex_;
  std::condition_variable changed_;
  enum class Hand { kEmpty, kOffered, kTaken } hand_ = Hand::kEmpty;  // of sync_, to the thread of the passes
  bool stopping_ = false;
  int serving_ = -1;                // the socket of a sender
  std::optional<int64_t> version_;  // that was published last
  std::thread thread_;
};

}  // namespace temper::exchange
