#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"

namespace temper::backends {

// Whether a run's choices are kept, with it and in the user's cache, or end with it: a run that is only tried
// must not decide what others compute.
enum class KeepChoices { kYes, kNo };

// What was chosen because it was the fastest of several that compute the same up to rounding: which one that
// is depends on the moment, so choices are kept. By where they were timed ("NVIDIA H200, cuBLASLt 130200")
// and what for (a product's shape), in a file of the user's cache; and while a run has its own file, there,
// too, so that a resumed run computes the bits that it had, whatever became of the cache. A run's file comes
// first. Files that cannot be read or written cost timing again, with a warning. Thread-safe.
class TimedChoices {
 public:
  explicit TimedChoices(std::string cache_file) : cache_file_(std::move(cache_file)) {}

  // Nothing where it was never timed. If the run's kernels were timed elsewhere so far, one warning says so.
  std::optional<std::string> recall(const std::string& where, const std::string& what);
  void remember(const std::string& where, const std::string& what, const std::string& choice);
  // What was recalled cannot be used here any more, and is about to be timed again: the same warning, where
  // the run had it.
  void refuse(const std::string& where, const std::string& what, const std::string& why);

  // From now on the run's choices are those of `file` and are kept there; "" ends that. `resumed`: the file
  // has the choices that the run was computed with so far; otherwise the choices start empty.
  void set_run(const std::string& file, bool resumed, KeepChoices keep = KeepChoices::kYes);
  // Changes with the run: what was recalled before may have been another's.
  int64_t generation() const;

 private:
  std::optional<std::string> find(const Json& choices, const std::string& where,
                                  const std::string& what) const;
  const Json& cache();
  void keep_in_run(const std::string& where, const std::string& what, const std::string& choice);
  void warn(const std::string& why);

  mutable std::mutex mutex_;
  const std::string cache_file_;
  std::optional<Json> cache_;  // as it was read, with what was timed since
  bool cache_writable_ = true;
  std::string run_file_;
  Json run_ = Json::Object{};
  bool run_resumed_ = false, run_warned_ = false, run_writable_ = true;
  KeepChoices keep_ = KeepChoices::kYes;
  int64_t generation_ = 0;
};

// Of products: the user's cublaslt.json.
TimedChoices& product_choices();

// A run's choices as long as it lives.
class RunChoices {
 public:
  RunChoices(const std::string& file, bool resumed, KeepChoices keep = KeepChoices::kYes) {
    product_choices().set_run(file, resumed, keep);
  }
  ~RunChoices() { product_choices().set_run("", false); }
  RunChoices(const RunChoices&) = delete;
  RunChoices& operator=(const RunChoices&) = delete;
};

}  // namespace temper::backends
