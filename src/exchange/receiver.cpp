// The thread that takes weights, and its connections.
#include "exchange/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/signals/thread_signals.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"

namespace temper::exchange {
namespace {

// Of a first message: what it says of itself, and how quantizers round, of which each weight has one or none.
constexpr int64_t kGreeting = int64_t{64} << 10, kGreetingOfAWeight = 512;  // bytes
constexpr double kPause = 0.1;        // seconds, where there is no room for another connection
constexpr double kLastAnswers = 1.0;  // seconds, until they have to be out
constexpr double kLongest = 3600;     // seconds, of one wait

int milliseconds_of(double seconds) {
  return static_cast<int>(std::ceil(std::clamp(seconds, 0.0, kLongest) * 1e3));
}

std::string why_late(const Session& session, double deadline_seconds) {
  if (session.sync && !session.sync->ended.empty()) return session.sync->ended;
  const char* const what = !session.out.is_empty()  ? "did not take its answer within"
                           : !session.in.is_empty() ? "did not send the rest of its message within"
                                                    : "sent nothing for";
  return fmt::format("[weights] the sender {} {:.1f} s", what, deadline_seconds);
}

}  // namespace

Receiver::Receiver(const std::string& socket, layers::ParameterStore& parameters,
                   const ReceiverOptions& options)
    : options_(options),
      largest_hello_(kGreeting + kGreetingOfAWeight * std::ssize(parameters.table().specs())),
      syncs_(parameters, options_, gate_, clock_),
      listener_(socket) {
  if (options.quantizers != nullptr) {
    options.quantizers->set_weights_rounded();
    options.quantizers->set_mode(quantizers::QuantizerMode::kOff);
  }
  if (options.adapters == nullptr) const IncomingWeights check(parameters, Names::kPacked, options.loading);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) fail_resources("[weights] no descriptor can be had for the thread that takes weights");
  thread_ = std::thread([this] { run(); });
}

Receiver::~Receiver() {
  gate_.end();
  const uint64_t one = 1;
  while (::write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  ::close(stop_);
}

void Receiver::run() {
  leave_signals_to_others();
  leave_core();
  const ThreadLimit alone(1);  // the pool is for the passes
  for (std::vector<pollfd> polled; wait(polled);) {
    for (size_t i = 2; i < polled.size(); ++i)
      if (polled[i].revents != 0) serve(*sessions_[i - 2]);
    if (polled[1].revents != 0) accept_one();
    expire();
    remove_ended();
  }
  end_all();
}

// For the first that happens; false where the receiver ends. Sessions come behind two other descriptors.
bool Receiver::wait(std::vector<pollfd>& polled) {
  const double begin = clock_.now();
  double until = begin + kLongest;
  if (const auto& sync = syncs_.pending())
    until = std::min(until, sync->last_message + options_.deadline_seconds);
  if (accepts_from_ > begin) until = std::min(until, accepts_from_);
  polled = {{stop_, POLLIN, 0}, {accepts_from_ > begin ? -1 : listener_.socket(), POLLIN, 0}};
  for (const auto& session : sessions_) {
    const int events = session->out.is_empty() ? POLLIN : POLLOUT;
    polled.push_back({session->socket.get(), static_cast<short>(events), 0});
    until = std::min(until, session->since + options_.deadline_seconds);
  }
  if (::poll(polled.data(), polled.size(), milliseconds_of(until - begin)) < 0)
    for (pollfd& each : polled) each.revents = 0;
  return polled[0].revents == 0;
}

void Receiver::accept_one() {
  if (std::ssize(sessions_) >= options_.most_connections && !make_room()) return;
  const int socket = ::accept4(listener_.socket(), nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) {
    if (errno == EMFILE || errno == ENFILE)
      make_room();  // for the next attempt
    else if (errno != EINTR && errno != ECONNABORTED)
      accepts_from_ = clock_.now() + kPause;
    return;
  }
  Session& session = *sessions_.emplace_back(std::make_unique<Session>(socket, clock_.now()));
  try {
    check_same_user(socket, "the sender");
  } catch (const Error& error) {
    refuse(session, error);
  }
}

// Ends the connection that has been idle longest. False where all have begun a sync: then others wait.
bool Receiver::make_room() {
  Session* idle = nullptr;
  for (const auto& session : sessions_)
    if (!session->is_sending() && (idle == nullptr || session->since < idle->since)) idle = session.get();
  if (idle == nullptr) {
    accepts_from_ = clock_.now() + kPause;
    return false;
  }
  const Error error(
      fmt::format("[weights] the receiver has {} connections and no room for more; this one was idle longest",
                  sessions_.size()),
      ErrorKind::kResources);
  refuse(*idle, error);
  idle->out.clear();
  remove_ended();
  return true;
}

// What its socket is ready for.
void Receiver::serve(Session& session) {
  try {
    if (session.out.is_empty()) read(session);
    flush(session);
  } catch (const std::exception& error) {
    refuse(session, error);
  }
}

void Receiver::read(Session& session) {
  std::optional<Json> reply;
  if (session.begin) {
    const PausedClock::Pause pause(clock_);
    reply = syncs_.begin_on_device(session);
  } else {
    const bool had_none = session.in.is_empty();
    std::optional<Message> message =
        session.in.read(session.socket.get(), session.greeted ? kLargestMessage : largest_hello_);
    if (session.in.is_closed()) {
      if (session.sync && session.sync == syncs_.pending())
        fail_resources("[weights] the sender closed the connection or died before it had finished");
      session.ends = true;
    }
    if (message || had_none != session.in.is_empty()) session.since = clock_.now();
    if (session.sync && session.sync == syncs_.pending())
      session.sync->last_message = std::max(session.sync->last_message, session.since);
    const PausedClock::Pause pause(clock_);
    if (message) reply = syncs_.answer(session, std::move(*message));
  }
  if (!reply) return;
  session.out.put(*reply);
  session.since = clock_.now();
}

void Receiver::flush(Session& session) const {
  if (session.out.is_empty()) return;
  session.out.write(session.socket.get());
  if (session.out.is_empty()) session.since = clock_.now();
}

// Whoever is late: senders, and ranks that are awaited in vain, which take their sync with them.
void Receiver::expire() {
  const double late = clock_.now() - options_.deadline_seconds;
  std::shared_ptr<Sync> pending = syncs_.pending();
  if (pending && pending->last_message > late) pending.reset();
  for (const auto& session : sessions_) {
    if (session->since > late && (!pending || session->sync != pending)) continue;
    refuse(*session, Error(why_late(*session, options_.deadline_seconds), ErrorKind::kResources));
  }
  if (!pending || syncs_.pending() != pending) return;
  const std::string why =
      fmt::format("[weights] version {}: {} of {} ranks sent their part, no other within {:.1f} s",
                  pending->version, pending->finished, pending->ranks, options_.deadline_seconds);
  syncs_.abandon(why);
  log_warning(fmt::format("{}; {}", why, gate_.what_stays()));
}

// A sync of several ranks survives one that was refused before it began. Who ends already does not hear it.
void Receiver::refuse(Session& session, const std::exception& error, bool warns) {
  if (session.ends) return session.out.clear();
  const auto* known = dynamic_cast<const Error*>(&error);
  const ErrorKind kind = known != nullptr ? known->kind() : ErrorKind::kResources;
  const std::shared_ptr<Sync> sync = std::exchange(session.sync, {});
  const bool pending = sync && sync == syncs_.pending();
  if (pending) syncs_.abandon(error.what());
  if (warns || pending)
    log_warning(fmt::format("{}{}; {}", error.what(),
                            pending ? fmt::format(" (version {})", sync->version) : "", gate_.what_stays()));
  session.ends = true;
  session.begin.reset();
  session.since = clock_.now();
  try {
    session.out.put(Json::Object{{"error", error.what()}, {"kind", static_cast<int>(kind)}});
    session.out.write(session.socket.get());
  } catch (const Error&) {
    session.out.clear();  // it does not hear any more
  }
}

void Receiver::remove_ended() {
  const auto is_over = [](const auto& session) { return session->ends && session->out.is_empty(); };
  const auto has_block = [&](const auto& session) {
    return is_over(session) && session->chunk && session->memory.type != DeviceType::kCpu;
  };
  try {
    if (std::any_of(sessions_.begin(), sessions_.end(), has_block))
      syncs_.between_passes([&] {
        for (const auto& session : sessions_)
          if (has_block(session)) session->chunk.reset();
      });
  } catch (const Error&) {
    // There are no more passes that this would disturb.
  }
  std::erase_if(sessions_, is_over);
}

// Answers that are on their way still go out.
void Receiver::end_all() {
  for (const auto& session : sessions_)
    if (!session->ends)
      refuse(*session, Error("[weights] the receiver has ended", ErrorKind::kResources), false);
  const double until = seconds_now() + kLastAnswers;
  for (remove_ended(); !sessions_.empty() && seconds_now() < until; remove_ended()) {
    std::vector<pollfd> polled;
    for (const auto& session : sessions_) polled.push_back({session->socket.get(), POLLOUT, 0});
    ::poll(polled.data(), polled.size(), milliseconds_of(until - seconds_now()));
    for (const auto& session : sessions_) {
      try {
        session->out.write(session->socket.get());
      } catch (const Error&) {
        session->out.clear();
      }
    }
  }
}

}  // namespace temper::exchange
