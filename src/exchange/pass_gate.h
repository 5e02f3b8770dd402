#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace temper::exchange {

// Weights that were taken.
struct Taken {
  int64_t version = 0;                 // as the sender named it
  std::optional<std::string> adapter;  // the name of one; none: the model's weights
  int64_t bytes = 0;                   // as they were sent
  double seconds = 0;                  // since the sender began
};

// Between the thread of the passes and the one that takes weights: work that must not run during a pass, and
// whether there may be a pass.
class PassGate {
 public:
  // Of the thread that takes weights. Waits until the other one has done the work, whose Error is thrown
  // here. An Error (kResources) where there will be no more passes.
  void between_passes(const std::function<void()>& work);
  // A sync begins, with whose first values passes have to wait until it is whole: it is `direct`.
  void begin_sync(bool direct);
  // It ends without having come whole: `broken`, why weights are partly new; empty, where they are not.
  void abandon_sync(const std::string& broken);
  void publish_sync(const Taken& taken, bool direct);
  std::string what_stays() const;  // as warnings say it

  // Of the thread of the passes: see Receiver.
  std::optional<Taken> take_new(const std::function<bool()>& stop, double deadline_seconds);
  bool holds() const;
  void end();  // there are no more passes

 private:
  struct Job {
    const std::function<void()>& work;
    bool begun = false, done = false;
    std::exception_ptr error = nullptr;
  };
  void run_job(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Job* job_ = nullptr;
  std::optional<Taken> taken_;
  bool held_ = false;     // passes
  std::string broken_;    // why the store's weights cannot be used; empty: they can
  double broken_at_ = 0;  // when the last attempt ended
  bool syncing_ = false;
  bool ended_ = false;
};

}  // namespace temper::exchange
