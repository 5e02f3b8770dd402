#include "base/threads/background.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/threads/pinning.h"

namespace temper {

Background::~Background() {
  if (thread_.joinable()) thread_.join();
}

void Background::start(std::function<void()> task) {
  wait();
  std::packaged_task<void()> packaged([task = std::move(task)] {
    leave_core();
    task();
  });
  done_ = packaged.get_future();
  try {
    thread_ = std::thread(std::move(packaged));
  } catch (const std::system_error& error) {
    done_ = {};
    fail_resources("a thread cannot be started: {}", error.what());
  }
}

bool Background::wait_for(double seconds) const {
  return !done_.valid() ||
         done_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

void Background::wait() {
  if (!thread_.joinable()) return;
  thread_.join();
  std::exchange(done_, {}).get();
}

}  // namespace temper
