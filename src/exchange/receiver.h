#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "exchange/adapters.h"
#include "exchange/chunk.h"
#include "exchange/connection.h"
#include "exchange/incoming_weights.h"

namespace temper::exchange {

struct ReceiverOptions {
  double deadline_seconds = 60;  // for each message of a sender, and for the next rank of a trainer
  Loading loading = Loading::kStaged;
  AdapterShelf* adapters = nullptr;  // null: none are taken
  // Of the model: those of values that pass round by scales that come with the weights, and nothing before;
  // weights come as theirs have rounded them. Null: the model has none.
  layers::Quantizers* quantizers = nullptr;
};

// Takes weights from senders of this machine (docs/weight_exchange.md), one sync at a time, on a thread of
// its own. What must not run beside a pass runs in take_new(), on the thread of the passes: publishing, work
// on a device, and with Loading::kDirect everything.
//
// With kStaged whatever goes wrong before all has come leaves the store as it was, bit for bit, and is a
// warning here and an Error of the sender. With kDirect passes are held from the first sender's begin to the
// last one's finish; what goes wrong between leaves weights of which nobody may use any, and passes are held
// until others have come whole. Adapters are always staged: they are small.
class Receiver {
 public:
  // Listens at the path of a socket. An Error where that cannot be, or the store cannot take weights
  // (IncomingWeights). The store must outlive it.
  Receiver(const std::string& socket, layers::ParameterStore& parameters,
           const ReceiverOptions& options = {});
  // Senders that wait are refused.
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  struct Taken {
    int64_t version = 0;                 // as the sender named it
    std::optional<std::string> adapter;  // the name of one; none: the model's weights
    int64_t bytes = 0;                   // as they were sent
    double seconds = 0;                  // since the sender began
  };
  // Between two passes, from the thread that makes them: does what waits for it, and says what has come whole
  // (the sender's answer waits for this). While passes are held it returns when they may go on, or when
  // `stop` says so: no pass may be made then. An Error (kResources) where weights were left broken and none
  // came in their place within the deadline.
  std::optional<Taken> take_new(const std::function<bool()>& stop = {});
  // Whether passes are held.
  bool holds() const;

 private:
  // Of one connection.
  struct Session {
    bool greeted = false, begun = false;
    Device memory = {};  // where chunks lie
    int rank = 0;
    std::unique_ptr<IncomingChunk> chunk;
  };
  // Of one sync, which may take a connection of each rank.
  struct Sync {
    std::optional<std::string> name;           // of an adapter; none: the model
    std::unique_ptr<layers::Adapter> adapter;  // that comes
    std::optional<IncomingWeights> weights;
    int64_t version = 0;
    int ranks = 1;
    std::set<int> finished;
    double begun = 0;
    std::string names;
    bool is_direct() const { return !name && weights->loading() == Loading::kDirect; }
  };
  // For the thread of the passes.
  struct Job {
    const std::function<void()>& work;
    bool begun = false, done = false;
    std::exception_ptr error = nullptr;
  };

  // receiver.cpp, all on the thread but run_job()
  void run();
  bool wait_for_sender();
  void serve(Connection& connection);
  void refuse(Connection& connection, const Session& session, const std::exception& error);
  void abandon(const std::string& why);
  std::string what_stays() const;
  void between_passes(const std::function<void()>& work);
  void run_job(std::unique_lock<std::mutex>& lock);
  // receiver_messages.cpp: what is answered
  Json answer(Session& session, Connection& connection, Connection::Message& message);
  Json hello(Session& session, const Json& message) const;
  Json begin(Session& session, Connection& connection, int file, const Json& message);
  void begin_sync(const Json& message, int64_t version, int ranks);
  Json update(const Session& session, const Json& message);
  void take_pieces(const Session& session, const Json& message);
  Json finish(Session& session);
  void publish();
  Json hashes(const Json& message);
  bool needs_turn(const Sync& sync) const;

  layers::ParameterStore& parameters_;
  const ReceiverOptions options_;
  Listener listener_;
  int stop_ = -1;  // a descriptor that becomes readable
  std::unique_ptr<Sync> sync_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Job* job_ = nullptr;
  std::optional<Taken> taken_;
  bool held_ = false;     // passes
  std::string broken_;    // why the store's weights cannot be used; empty: they can
  double broken_at_ = 0;  // when the last attempt ended
  bool syncing_ = false;
  bool stopping_ = false;
  int serving_ = -1;  // the socket of a sender
  std::thread thread_;
};

}  // namespace temper::exchange
