#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rewards/protocol.h"
#include "rewards/reward.h"

namespace temper::rewards {

// An answer on its way to be judged.
struct Task {
  int64_t id = 0;
  std::string place;
  std::string request;  // request_of() it
};

// Between the caller of a Reward and a thread that judges while the caller does other work.
class Exchange {
 public:
  // Of the caller; submit() and take() as those of Reward. Both are Errors once the thread has failed, but
  // verdicts that were there before are taken first.
  void submit(Task task);
  std::vector<std::pair<int64_t, Verdict>> take(double seconds);

  // Starts the thread: `serve` returns when take_submitted() is false; what it throws is the failure, and
  // `key` ("grpo.rewards[0].url") begins its message. `wake` ends a wait of the thread for something else.
  void start(const std::string& key, std::function<void()> serve, std::function<void()> wake);
  void stop();  // and waits for its end

  // Of the thread.
  bool take_submitted(std::deque<Task>& tasks);  // whether to go on
  void add(std::vector<std::pair<int64_t, Verdict>> verdicts);

 private:
  void check_alive() const;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> submitted_;
  std::vector<std::pair<int64_t, Verdict>> done_;
  size_t awaited_ = 0;          // tasks whose verdicts have not been taken
  std::exception_ptr failure_;  // of the thread
  std::string key_;
  bool stop_ = false;
  std::function<void()> wake_;
  std::thread thread_;
};

// Judges by an exchange, whose thread the class that derives from it starts, and stops in its destructor.
class ExchangeReward : public Reward {
 public:
  void submit(int64_t id, const Sample& sample) final {
    exchange_.submit({id, sample.place, request_of(id, sample)});
  }
  std::vector<std::pair<int64_t, Verdict>> take(double seconds) final { return exchange_.take(seconds); }

 protected:
  Exchange exchange_;
};

}  // namespace temper::rewards
