#include "rewards/program/pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace temper::rewards {
namespace {

constexpr int kMostDeaths = 3;
constexpr double kSecondsToEnd = 1;

}  // namespace

Pool::Pool(Launch launch, size_t processes, const std::string& key) : launch_(std::move(launch)) {
  for (size_t i = 0; i < processes; ++i) workers_.emplace_back(launch_);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) fail_resources("[{}] no file to wake a thread: {}", key, std::strerror(errno));
  exchange_.start(
      key + ".command", [this] { serve(); }, [this] { wake(); });
}

Pool::~Pool() {
  exchange_.stop();
  ::close(wake_);
}

void Pool::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

// Processes end with the thread that started them; those of a program that is given up are killed.
void Pool::serve() {
  try {
    while (exchange_.take_submitted(queue_)) {
      hand_out();
      wait_for_work();
      advance();
    }
  } catch (...) {
    workers_.clear();
    throw;
  }
  end_processes();
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
    verdicts.emplace_back(death->blamed.id, Verdict{.error = std::move(death->reason)});
    for (auto task = death->others.rbegin(); task != death->others.rend(); ++task)
      queue_.push_front(std::move(*task));
  }
  exchange_.add(std::move(verdicts));
}

// The end of its input is what a program ends by; those that take longer are killed.
void Pool::end_processes() {
  for (Worker& worker : workers_) worker.close_input();
  const double end = seconds_now() + kSecondsToEnd;
  const auto have_ended = [this] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.has_ended(); });
  };
  while (!have_ended() && seconds_now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  workers_.clear();
}

}  // namespace temper::rewards
