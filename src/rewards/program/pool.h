#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rewards/program/worker.h"

namespace temper::rewards {

// The processes of one program, with a thread that speaks with all of them.
class Pool {
 public:
  // `key` ("grpo.rewards[0]") begins the messages of Errors.
  Pool(Launch launch, size_t processes, std::string key);
  ~Pool();  // processes have a second to end by themselves
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // As those of Reward. An Error once the program has been given up: it cannot be started, or three times in
  // a row a process died without an answer.
  void submit(Task task);
  std::vector<std::pair<int64_t, Verdict>> take(bool wait);

 private:
  void run();
  void serve();
  bool take_submitted();
  void hand_out();
  void wait_for_work() const;
  void advance();
  void end_processes();
  void wake() const;

  const Launch launch_;
  const std::string key_;
  int wake_ = -1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> submitted_;
  std::vector<std::pair<int64_t, Verdict>> done_;
  size_t awaited_ = 0;  // tasks that take() has not returned
  std::string failure_;
  bool stop_ = false;

  // Of the thread alone.
  std::vector<Worker> workers_;
  std::deque<Task> queue_;
  std::thread thread_;
};

}  // namespace temper::rewards
