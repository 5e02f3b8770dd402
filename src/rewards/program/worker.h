#pragma once
#include <poll.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/processes/child.h"
#include "rewards/exchange.h"

namespace temper::rewards {

struct Launch {
  std::vector<std::string> words;  // the program's path and its arguments
  std::string name;                // for messages
  size_t parallel = 1;             // tasks that a process has at once
  double timeout = 30;             // seconds for a task, from when a process got it
};

// One process of a program, which is started when a task comes and there is none. Its calls do not block, but
// for the moment that a process takes to start or to be killed.
class Worker {
 public:
  explicit Worker(const Launch& launch) : launch_(&launch) {}

  bool is_running() const { return child_ != nullptr; }
  size_t num_tasks() const { return tasks_.size(); }
  bool is_full() const { return tasks_.size() >= launch_->parallel; }
  void give(Task task, double now);  // an Error where the program cannot be started

  void add_waits(std::vector<pollfd>& waits) const;
  double deadline() const;  // of its tasks, as seconds_now() has it; infinite without any

  // The end of a process that did what it must not do, or ended.
  struct Death {
    Task blamed;  // the task that it was at
    std::string reason;
    std::vector<Task> others;  // in their order
  };
  // Writes and reads what there is; verdicts are added.
  std::optional<Death> advance(double now, std::vector<std::pair<int64_t, Verdict>>& verdicts);
  int deaths() const { return deaths_; }  // since its last answer

  void close_input();  // the process is to end
  bool has_ended() const { return !child_ || child_->ended().has_value(); }

 private:
  struct Given {
    Task task;
    double deadline;  // seconds
  };
  bool write();
  bool read();
  void read_errors();
  std::optional<std::string> take_lines(std::vector<std::pair<int64_t, Verdict>>& verdicts);
  std::string end_of(const std::string& otherwise);
  std::optional<Death> die(const std::string& what);
  std::string last_errors() const;

  const Launch* launch_;
  std::unique_ptr<Child> child_;
  std::deque<Given> tasks_;
  size_t blamed_ = 0;  // the task of an answer that was none
  std::string outgoing_, incoming_, errors_;
  size_t searched_ = 0;  // bytes of incoming_ without the end of a line
  int deaths_ = 0;
  bool was_reported_ = false;  // that a process ended between two answers
};

}  // namespace temper::rewards
