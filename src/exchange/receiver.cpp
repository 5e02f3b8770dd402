// The thread that takes weights, and how it hands them over.
#include "exchange/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pinning.h"
#include "base/thread_signals.h"
#include "base/threads.h"

namespace temper::exchange {

Receiver::Receiver(const std::string& socket, layers::ParameterStore& parameters,
                   const ReceiverOptions& options)
    : parameters_(parameters), options_(options), listener_(socket) {
  const StagedWeights check(parameters, Names::kPacked);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) fail_resources("[weights] no descriptor can be had for the thread that takes weights");
  thread_ = std::thread([this] { run(); });
}

Receiver::~Receiver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // A message that is half here is not waited for; answers still go out.
    if (serving_ >= 0) ::shutdown(serving_, SHUT_RD);
  }
  changed_.notify_all();
  const uint64_t one = 1;
  while (::write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  ::close(stop_);
}

std::optional<Receiver::Taken> Receiver::take_new() {
  std::unique_lock lock(mutex_);
  if (hand_ != Hand::kOffered) return {};
  sync_->weights.publish(parameters_);
  version_ = sync_->version;
  hand_ = Hand::kTaken;
  const Taken taken{sync_->version, sync_->weights.bytes_taken(), seconds_now() - sync_->begun};
  lock.unlock();
  changed_.notify_all();
  return taken;
}

// False where the receiver ends. Ranks that are awaited in vain take their sync with them.
bool Receiver::wait_for_sender() {
  const double until = seconds_now() + options_.deadline_seconds;
  for (;;) {
    std::array<pollfd, 2> both{{{stop_, POLLIN, 0}, {listener_.socket(), POLLIN, 0}}};
    const int milliseconds = sync_ ? static_cast<int>(std::max(0.0, (until - seconds_now()) * 1e3)) + 1 : -1;
    const int ready = ::poll(both.data(), both.size(), milliseconds);
    if (both[0].revents != 0) return false;
    if (ready > 0) return true;
    if (ready == 0 && sync_ && seconds_now() >= until) {
      log_warning(
          fmt::format("[weights] version {}: {} of {} ranks sent their part, no other within {:.1f} s; "
                      "the old weights stay",
                      sync_->version, sync_->finished.size(), sync_->ranks, options_.deadline_seconds));
      sync_.reset();
    }
  }
}

void Receiver::run() {
  leave_signals_to_others();
  leave_core();
  const ThreadLimit alone(1);  // the pool is for the passes
  while (wait_for_sender()) {
    const int socket = ::accept4(listener_.socket(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    Connection connection(socket, "the sender", options_.deadline_seconds);
    const auto set_serving = [&](int serving) {
      const std::lock_guard lock(mutex_);
      serving_ = serving;
    };
    set_serving(socket);
    serve(connection);
    set_serving(-1);
  }
}

// Until the sender has closed the connection, or something went wrong.
void Receiver::serve(Connection& connection) {
  Session session;
  try {
    while (connection.waits_for_more(stop_)) {
      Connection::Message message = connection.receive();
      connection.send(answer(session, message));
    }
    if (session.begun)
      fail_resources("[weights] the sender closed the connection or died before it had finished");
  } catch (const std::exception& error) {
    refuse(connection, session, error);
  }
}

// A sync of several ranks survives one that was refused before it began.
void Receiver::refuse(Connection& connection, const Session& session, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const ErrorKind kind = known != nullptr ? known->kind() : ErrorKind::kResources;
  const std::string version = session.begun ? fmt::format(" (version {})", sync_->version) : "";
  if (session.begun) sync_.reset();
  {
    const std::lock_guard lock(mutex_);
    hand_ = Hand::kEmpty;
  }
  log_warning(fmt::format("{}{}; the old weights stay", error.what(), version));
  try {
    connection.send(Json::Object{{"error", error.what()}, {"kind", static_cast<int>(kind)}});
  } catch (const Error&) {
    // It does not hear any more.
  }
}

}  // namespace temper::exchange
