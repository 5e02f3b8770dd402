#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exchange/connection.h"
#include "exchange/sync_server.h"

struct pollfd;

namespace temper::exchange {

// Takes weights from senders of this machine (docs/weight_exchange.md), one sync at a time, on a thread of
// its own that waits for all connections at once. What must not run during a pass runs in take_new(), on the
// thread of the passes: publishing, work on a device, and with Loading::kDirect everything.
//
// With kStaged whatever goes wrong before all has come leaves the store as it was, bit for bit, and is a
// warning here and an Error of the sender. With kDirect passes are held from the first sender's begin to the
// last one's finish; an error in between leaves weights that no pass may use, and passes are held until
// others have come whole. Adapters are always staged: they are small.
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
  // All of it is on the thread.
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

  const ReceiverOptions options_;
  const int64_t largest_hello_;  // bytes
  PassGate gate_;
  PausedClock clock_;
  SyncServer syncs_;
  Listener listener_;
  int stop_ = -1;  // a descriptor that becomes readable
  std::vector<std::unique_ptr<Session>> sessions_;
  double accepts_from_ = 0;  // when the next connection is taken
  std::thread thread_;
};

}  // namespace temper::exchange
