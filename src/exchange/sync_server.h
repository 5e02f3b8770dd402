#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exchange/pass_gate.h"
#include "exchange/paused_clock.h"
#include "exchange/receiver_options.h"
#include "exchange/session.h"

namespace temper::exchange {

// Answers the messages of senders: syncs begin, take values, and are published (docs/weight_exchange.md). All
// of it is on the receiver's thread; what passes must not see half done runs between two of them.
class SyncServer {
 public:
  // All of them must outlive it.
  SyncServer(layers::ParameterStore& parameters, const ReceiverOptions& options, PassGate& gate,
             PausedClock& clock)
      : parameters_(parameters), options_(options), gate_(gate), clock_(clock) {}

  // The reply; nothing where the message has another part, which begin_on_device() takes.
  std::optional<Json> answer(Session& session, Message message);
  Json begin_on_device(Session& session);
  // The sync that has begun and is not whole; null: there is none.
  const std::shared_ptr<Sync>& pending() const { return sync_; }
  // It ends here. Ranks that have begun it hear so with their next message.
  void abandon(const std::string& why);
  // Waiting for passes does not count against deadlines.
  void between_passes(const std::function<void()>& work);

 private:
  Json hello(Session& session, const Json& message) const;
  Json begin(Session& session, const Json& message);
  void begin_sync(const Json& message, int64_t version, int ranks);
  Json update(Session& session, const Json& message);
  Json finish(Session& session);
  void publish();
  Json hashes(const Json& message);
  bool needs_turn(const Sync& sync) const;

  layers::ParameterStore& parameters_;
  const ReceiverOptions& options_;
  PassGate& gate_;
  PausedClock& clock_;
  std::shared_ptr<Sync> sync_;
};

}  // namespace temper::exchange
