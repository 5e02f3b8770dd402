#include "rewards/program/pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/error.h"

namespace temper::rewards {
namespace {

constexpr int kMostDeaths = 3;
constexpr double kSecondsToEnd = 1;

// Signals are for the program's main thread; SIGPIPE, of a process that has ended, is for nobody. Those that
// tell of this thread's own mistakes cannot be put off.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

Pool::Pool(Launch launch, size_t processes, std::string key)
    : launch_(std::move(launch)), key_(std::move(key)) {
  for (size_t i = 0; i < processes; ++i) workers_.emplace_back(launch_);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) fail_resources("[{}] no file to wake a thread: {}", key_, std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
  ::close(wake_);
}

void Pool::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void Pool::submit(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) fail("{}", failure_);
    submitted_.push_back(std::move(task));
    ++awaited_;
  }
  wake();
}

std::vector<std::pair<int64_t, Verdict>> Pool::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) changed_.wait(lock, [this] { return !done_.empty() || awaited_ == 0 || !failure_.empty(); });
  if (done_.empty() && awaited_ > 0 && !failure_.empty()) fail("{}", failure_);
  awaited_ -= done_.size();
  return std::exchange(done_, {});
}

// A failure of any kind ends the service, and reaches whoever awaits an answer.
void Pool::run() {
  block_signals();
  std::string failure;
  try {
    serve();
  } catch (const std::exception& error) {
    failure = fmt::format("[{}.command] {}", key_, error.what());
  }
  end_processes();
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  changed_.notify_all();
}

void Pool::serve() {
  while (take_submitted()) {
    hand_out();
    wait_for_work();
    advance();
  }
}

// Whether to go on.
bool Pool::take_submitted() {
  const std::lock_guard lock(mutex_);
  for (Task& task : submitted_) queue_.push_back(std::move(task));
  submitted_.clear();
  return !stop_;
}

// To the processes that have least to do; of equals to one that runs.
void Pool::hand_out() {
  const auto comes_before = [](const Worker& a, const Worker& b) {
    return std::pair(a.num_tasks(), !a.is_running()) < std::pair(b.num_tasks(), !b.is_running());
  };
  while (!queue_.empty()) {
    Worker& worker = *std::min_element(workers_.begin(), workers_.end(), comes_before);
    if (worker.is_full()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    worker.give(std::move(task), seconds_now());
  }
}

void Pool::wait_for_work() const {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  double seconds = std::numeric_limits<double>::infinity();
  const double now = seconds_now();
  for (const Worker& worker : workers_) {
    worker.add_waits(waits);
    seconds = std::min(seconds, worker.deadline() - now);
  }
  // Rounded up: a wait that ends before the deadline would only be repeated.
  const int milliseconds =
      std::isinf(seconds) ? -1 : static_cast<int>(std::clamp(std::ceil(seconds * 1000), 0.0, 1e9));
  ::poll(waits.data(), waits.size(), milliseconds);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(wake_, &count, sizeof count);
}

void Pool::advance() {
  std::vector<std::pair<int64_t, Verdict>> verdicts;
  for (Worker& worker : workers_) {
    std::optional<Worker::Death> death = worker.advance(seconds_now(), verdicts);
    if (!death) continue;
    if (worker.deaths() >= kMostDeaths)
      fail("a process died {} times in a row without an answer, the last time at {}: {}", kMostDeaths,
           death->blamed.place, death->reason);
    verdicts.push_back({death->blamed.id, {.error = std::move(death->reason)}});
    for (auto task = death->others.rbegin(); task != death->others.rend(); ++task)
      queue_.push_front(std::move(*task));
  }
  if (verdicts.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(verdicts.begin(), verdicts.end(), std::back_inserter(done_));
  changed_.notify_all();
}

// The end of its input is what a program ends by; those that take longer are killed.
void Pool::end_processes() {
  for (Worker& worker : workers_) worker.close_input();
  const double end = seconds_now() + kSecondsToEnd;
  const auto have_ended = [this] {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.has_ended(); });
  };
  while (!have_ended() && seconds_now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  workers_.clear();
}

}  // namespace temper::rewards
