// The thread that takes weights, and how it hands them over.
#include "exchange/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

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
  if (options.quantizers != nullptr) {
    options.quantizers->set_weights_rounded();
    options.quantizers->set_mode(layers::QuantizerMode::kOff);
  }
  if (options.adapters == nullptr) const IncomingWeights check(parameters, Names::kPacked, options.loading);
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

bool Receiver::holds() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void Receiver::run_job(std::unique_lock<std::mutex>& lock) {
  Job& job = *std::exchange(job_, nullptr);
  job.begun = true;
  lock.unlock();
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  lock.lock();
  job.done = true;
  changed_.notify_all();
}

std::optional<Receiver::Taken> Receiver::take_new(const std::function<bool()>& stop) {
  constexpr std::chrono::milliseconds kSlice(50);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (job_ != nullptr) run_job(lock);
    if (!held_ || (stop && stop())) return std::exchange(taken_, {});
    if (!broken_.empty() && !syncing_ && seconds_now() > broken_at_ + options_.deadline_seconds)
      fail_resources(
          "[weights] a sync ended in the middle ({}), so the weights are partly old and partly new, and no "
          "others "
          "came within {:.1f} s; start again, or send all of them in time",
          broken_, options_.deadline_seconds);
    changed_.wait_for(lock, kSlice, [&] { return job_ != nullptr || !held_; });
  }
}

// An Error of the work is thrown here. An Error where there will be no more passes.
void Receiver::between_passes(const std::function<void()>& work) {
  Job job{work};
  std::unique_lock lock(mutex_);
  job_ = &job;
  changed_.notify_all();
  changed_.wait(lock, [&] { return job.done || (stopping_ && !job.begun); });
  if (!job.done) {
    job_ = nullptr;
    fail_resources("[weights] the receiver ended before it took the weights");
  }
  lock.unlock();
  if (job.error) std::rethrow_exception(job.error);
}

std::string Receiver::what_stays() const {
  const std::lock_guard lock(mutex_);
  return broken_.empty() ? "the old weights stay"
                         : "the weights are partly new and cannot be used until others have come whole";
}

// The sync that is under way ends here.
void Receiver::abandon(const std::string& why) {
  if (!sync_) return;
  const std::lock_guard lock(mutex_);
  if (sync_->is_direct()) {
    if (sync_->weights->has_overwritten()) broken_ = why;
    held_ = !broken_.empty();
  }
  broken_at_ = seconds_now();
  syncing_ = false;
  sync_.reset();
  changed_.notify_all();
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
      const std::string why =
          fmt::format("[weights] version {}: {} of {} ranks sent their part, no other within {:.1f} s",
                      sync_->version, sync_->finished.size(), sync_->ranks, options_.deadline_seconds);
      abandon(why);
      log_warning(fmt::format("{}; {}", why, what_stays()));
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
      connection.send(answer(session, connection, message));
    }
    if (session.begun)
      fail_resources("[weights] the sender closed the connection or died before it had finished");
  } catch (const std::exception& error) {
    refuse(connection, session, error);
  }
  if (session.memory.type == DeviceType::kCpu) return;
  try {
    between_passes([&] { session.chunk.reset(); });
  } catch (const Error&) {
    // There are no more passes beside which this would be.
  }
}

// A sync of several ranks survives one that was refused before it began.
void Receiver::refuse(Connection& connection, const Session& session, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const ErrorKind kind = known != nullptr ? known->kind() : ErrorKind::kResources;
  const std::string version = session.begun && sync_ ? fmt::format(" (version {})", sync_->version) : "";
  if (session.begun) abandon(error.what());
  log_warning(fmt::format("{}{}; {}", error.what(), version, what_stays()));
  try {
    connection.send(Json::Object{{"error", error.what()}, {"kind", static_cast<int>(kind)}});
  } catch (const Error&) {
    // It does not hear any more.
  }
}

}  // namespace temper::exchange
