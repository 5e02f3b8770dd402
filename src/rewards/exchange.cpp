#include "rewards/exchange.h"

#include <chrono>
#include <cmath>
#include <iterator>
#include <system_error>

#include "base/signals/thread_signals.h"

namespace temper::rewards {

void Exchange::submit(Task task) {
  {
    const std::lock_guard lock(mutex_);
    check_alive();
    submitted_.push_back(std::move(task));
    ++awaited_;
  }
  wake_();
}

std::vector<std::pair<int64_t, Verdict>> Exchange::take(double seconds) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return !done_.empty() || awaited_ == 0 || failure_; };
  if (std::isinf(seconds))
    changed_.wait(lock, is_over);
  else if (seconds > 0)
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), is_over);
  if (done_.empty() && awaited_ > 0) check_alive();
  awaited_ -= done_.size();
  return std::exchange(done_, {});
}

void Exchange::check_alive() const {
  if (failure_) try {
      std::rethrow_exception(failure_);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const Error& error) {
      throw Error(fmt::format("[{}] {}", key_, error.what()), error.kind());
    } catch (const std::exception& error) {
      throw Error(fmt::format("[{}] {}", key_, error.what()), ErrorKind::kDefect);
    }
}

void Exchange::start(const std::string& key, std::function<void()> serve, std::function<void()> wake) {
  wake_ = std::move(wake);
  key_ = key;
  const auto run = [this, serve = std::move(serve)] {
    leave_signals_to_others();
    try {
      serve();
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();  // which takes no memory
    }
    changed_.notify_all();
  };
  try {
    thread_ = std::thread(run);
  } catch (const std::system_error& error) {
    fail_resources("[{}] no thread can be started to judge answers: {}", key, error.what());
  }
}

void Exchange::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (!thread_.joinable()) return;
  wake_();
  thread_.join();
}

bool Exchange::take_submitted(std::deque<Task>& tasks) {
  const std::lock_guard lock(mutex_);
  std::move(submitted_.begin(), submitted_.end(), std::back_inserter(tasks));
  submitted_.clear();
  return !stop_;
}

void Exchange::add(std::vector<std::pair<int64_t, Verdict>> verdicts) {
  if (verdicts.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(verdicts.begin(), verdicts.end(), std::back_inserter(done_));
  changed_.notify_all();
}

}  // namespace temper::rewards
