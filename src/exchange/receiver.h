#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exchange/adapters.h"
#include "exchange/connection.h"
#include "exchange/pass_gate.h"
#include "exchange/session.h"

struct pollfd;

namespace temper::exchange {

struct ReceiverOptions {
  double deadline_seconds = 60;  // for each message of a sender, and of a sync that has begun
  Loading loading = Loading::kStaged;
  AdapterShelf* adapters = nullptr;  // null: none are taken
  // Of the model: those of values that pass round by scales that come with the weights, and nothing before;
  // weights come as theirs have rounded them. Null: the model has none.
  quantizers::Quantizers* quantizers = nullptr;
  int64_t most_connections = 1024;  // beyond them the one that is idle longest is closed
};

// Takes weights from senders of this machine (docs/weight_exchange.md), one sync at a time, on a thread of
// its own that waits for all connections at once. What must not run beside a pass runs in take_new(), on the
// thread of the passes: publishing, work on a device, and with Loading::kDirect everything.
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

  using Taken = exchange::Taken;
  // Between two passes, from the thread that makes them: does what waits for it, and says what has come whole
  // (the sender's answer waits for this). While passes are held it returns when they may go on, or when
  // `stop` says so: no pass may be made then. An Error (kResources) where weights were left broken and none
  // came in their place within the deadline.
  std::optional<Taken> take_new(const std::function<bool()>& stop = {}) {
    return gate_.take_new(stop, options_.deadline_seconds);
  }
  // Whether passes are held.
  bool holds() const { return gate_.holds(); }

 private:
  // receiver.cpp: connections; all of it is on the thread
  void run();
  bool wait(std::vector<pollfd>& polled);
  void accept_one();
  bool make_room();
  void serve(Session& session);
  void read(Session& session);
  void flush(Session& session) const;
  void expire();
  void refuse(Session& session, const std::exception& error, bool warns = true);  // or where a sync ends
  void remove_ended();
  void end_all();
  // receiver_messages.cpp: what is answered, nothing where a message has another part
  std::optional<Json> answer(Session& session, Message message);
  Json hello(Session& session, const Json& message) const;
  Json begin_on_device(Session& session);
  Json begin(Session& session, const Json& message);
  void begin_sync(const Json& message, int64_t version, int ranks);
  void abandon(const std::string& why);
  Json update(Session& session, const Json& message);
  void take_pieces(const Session& session, const Json& message);
  Json finish(Session& session);
  void publish();
  Json hashes(const Json& message);
  bool needs_turn(const Sync& sync) const;
  void between_passes(const std::function<void()>& work);
  // What deadlines are counted in: seconds, without those in which this thread was away.
  double now() const;
  // While one lives, the receiver works or waits for passes, and reads nothing: senders are not late for
  // that.
  class Away {
   public:
    explicit Away(Receiver& receiver);
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Receiver* const receiver_;
    const double begin_;
  };

  layers::ParameterStore& parameters_;
  const ReceiverOptions options_;
  const int64_t largest_hello_;  // bytes
  PassGate gate_;
  Listener listener_;
  int stop_ = -1;  // a descriptor that becomes readable
  std::vector<std::unique_ptr<Session>> sessions_;
  std::shared_ptr<Sync> sync_;  // that has begun and is not whole
  double away_ = 0;             // seconds that now() leaves out
  bool is_away_ = false;
  double accepts_from_ = 0;  // when the next connection is taken
  std::thread thread_;
};

}  // namespace temper::exchange
