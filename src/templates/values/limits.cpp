#include "templates/values/limits.h"

#include <ctime>

#include "base/error.h"

namespace temper::templates {
namespace {

constexpr int64_t kStepsBetweenLooks = 4096;
constexpr size_t kSizePerStep = 32;

thread_local Budget* at_hand = nullptr;

// That this thread has had a processor, in seconds.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits), end_(processor_seconds() + limits.seconds), around_(at_hand) {
  at_hand = this;
}

Budget::~Budget() { at_hand = around_; }

void Budget::check_time() {
  next_look_ = steps_ + kStepsBetweenLooks;
  if (processor_seconds() > end_)
    fail("the template takes more than {} seconds of a processor", limits_.seconds);
}

const Limits& limits_at_hand() {
  static const Limits kDefaults;
  return at_hand ? at_hand->limits_ : kDefaults;
}

void spend(size_t size) {
  if (!at_hand) return;
  at_hand->steps_ += 1 + static_cast<int64_t>(size / kSizePerStep);
  if (at_hand->steps_ > at_hand->limits_.steps)
    fail("the template takes more than {} steps", at_hand->limits_.steps);
  if (at_hand->steps_ >= at_hand->next_look_) at_hand->check_time();
}

void spend_memory(size_t bytes) {
  if (!at_hand) return;
  at_hand->bytes_ += bytes;
  if (at_hand->bytes_ > at_hand->limits_.bytes)
    fail("the template makes more than {} bytes of texts and lists", at_hand->limits_.bytes);
}

void count_none() {
  if (at_hand) ++at_hand->nones_;
}

void check_text_size(size_t pieces, size_t bytes_each) {
  const size_t most = limits_at_hand().text;
  if (bytes_each != 0 && pieces > most / bytes_each) fail("a text would be larger than {} bytes", most);
}

void check_items(size_t count, size_t times) {
  const size_t most = limits_at_hand().items;
  if (times != 0 && count > most / times) fail("a list would have more than {} items", most);
}

}  // namespace temper::templates
