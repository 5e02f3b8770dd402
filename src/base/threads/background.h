#pragma once
#include <functional>
#include <future>
#include <thread>

namespace temper {

// Runs one task at a time in the background of the thread that starts it, on any core. Calls come from one
// thread.
class Background {
 public:
  Background() = default;
  ~Background();  // waits; what the task threw is lost
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Waits for the task before. An Error (kResources) where no thread can be started.
  void start(std::function<void()> task);
  bool wait_for(double seconds) const;  // whether it is done, or there is none
  void wait();                          // throws what the task threw

 private:
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace temper
