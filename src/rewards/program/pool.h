#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "rewards/exchange.h"
#include "rewards/program/worker.h"

namespace temper::rewards {

// The processes of one program, with a thread that speaks with all of them. It gives the program up when that
// cannot be started, or when a process has died three times in a row without an answer.
class Pool final : public ExchangeReward {
 public:
  // `key` ("grpo.rewards[0]") begins the messages of Errors.
  Pool(Launch launch, size_t processes, const std::string& key);
  ~Pool() override;  // processes have a second to end by themselves
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  void serve();
  void hand_out();
  void wait_for_work() const;
  void advance();
  void end_processes();
  void wake() const;

  const Launch launch_;
  int wake_ = -1;
  // Of the thread alone.
  std::vector<Worker> workers_;
  std::deque<Task> queue_;
};

}  // namespace temper::rewards
