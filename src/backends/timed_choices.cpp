#include "backends/timed_choices.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json/shared_json.h"
#include "base/log.h"
#include "base/text.h"

namespace temper::backends {
namespace {

constexpr std::string_view kTimed = "measured product algorithms";

void set(Json& choices, const std::string& where, const std::string& what, const std::string& choice) {
  const Json* known = choices.find(where);
  Json all = known != nullptr && known->is_object() ? *known : Json(Json::Object{});
  all.set(what, choice);
  choices.set(where, std::move(all));
}

}  // namespace

TimedChoices& product_choices() {
  static TimedChoices instance(join_path(cache_folder(), "cublaslt.json"));
  return instance;
}

std::optional<std::string> TimedChoices::find(const Json& choices, const std::string& where,
                                              const std::string& what) const {
  const Json* all = choices.find(where);
  const Json* choice = all != nullptr && all->is_object() ? all->find(what) : nullptr;
  return choice != nullptr && choice->is_string() ? std::optional(choice->as_string()) : std::nullopt;
}

const Json& TimedChoices::cache() {
  if (!cache_) cache_ = read_shared_json(cache_file_, kTimed);
  return *cache_;
}

std::optional<std::string> TimedChoices::recall(const std::string& where, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (auto own = find(run_, where, what)) return own;
  if (run_resumed_ && !run_.as_object().empty() && run_.find(where) == nullptr) {
    std::vector<std::string> before;
    for (const auto& [place, choices] : run_.as_object()) before.push_back(place);
    warn(fmt::format("its matrix multiplications were timed on {}, and this device is {}",
                     join(before, " and "), where));
  }
  auto shared = find(cache(), where, what);
  if (shared) keep_in_run(where, what, *shared);
  return shared;
}

void TimedChoices::remember(const std::string& where, const std::string& what, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  keep_in_run(where, what, choice);
  if (keep_ == KeepChoices::kNo) return;
  cache();
  set(*cache_, where, what, choice);
  if (!cache_writable_) return;
  try {
    update_shared_json(cache_file_, kTimed, [&](Json& all) { set(all, where, what, choice); });
  } catch (const Error& error) {
    cache_writable_ = false;
    log_warning(fmt::format("{} are not kept: {}", kTimed, error.what()));
  }
}

void TimedChoices::refuse(const std::string& where, const std::string& what, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (run_resumed_ && find(run_, where, what)) warn(fmt::format("its algorithm for {} {}", what, why));
}

void TimedChoices::warn(const std::string& why) {
  if (std::exchange(run_warned_, true)) return;
  log_warning(fmt::format("the run resumes, but results may differ in their last bits from now on: {}", why));
}

void TimedChoices::keep_in_run(const std::string& where, const std::string& what, const std::string& choice) {
  if (run_file_.empty()) return;
  set(run_, where, what, choice);
  if (!run_writable_ || keep_ == KeepChoices::kNo) return;
  try {
    write_file(run_file_, run_.dump(1) + "\n");
  } catch (const Error& error) {
    run_writable_ = false;
    log_warning(fmt::format("{} are not kept with the run: {}", kTimed, error.what()));
  }
}

void TimedChoices::set_run(const std::string& file, bool resumed, KeepChoices keep) {
  const std::lock_guard lock(mutex_);
  run_file_ = file;
  run_ = resumed ? read_shared_json(file, "algorithms of the run") : Json(Json::Object{});
  run_resumed_ = resumed;
  keep_ = keep;
  run_warned_ = false;
  run_writable_ = true;
  ++generation_;
}

int64_t TimedChoices::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

}  // namespace temper::backends
