#include "recipes/parts/update_time.h"

#include <algorithm>

namespace temper::recipes {
namespace {

constexpr double kQuick = 3, kLong = 30;  // seconds

// As many as are likely to be quick, if not fewer than two times `few`.
int64_t more_rows(const UpdateToTime& update, int64_t few, double seconds) {
  const auto quick = static_cast<int64_t>(static_cast<double>(few) * std::min(kQuick / seconds, 1e6));
  return std::min(update.rows, std::max(2 * few, quick));
}

}  // namespace

double estimate_update(const std::vector<TimedUpdate>& timed, double tokens) {
  const TimedUpdate& last = timed.back();
  if (timed.size() == 1) return last.seconds * tokens / last.tokens;
  const TimedUpdate& before = timed[timed.size() - 2];
  if (last.tokens <= before.tokens) return last.seconds * tokens / last.tokens;
  const double slope = std::max(0.0, (last.seconds - before.seconds) / (last.tokens - before.tokens));
  // No more than if all of it depended on the tokens: the clock is not exact.
  return last.seconds + std::min(slope, last.seconds / last.tokens) * (tokens - last.tokens);
}

double time_update(const UpdateToTime& update) {
  const double all = update.tokens(update.rows);
  std::vector<TimedUpdate> timed;
  for (int64_t rows = update.fewest;;) {
    // The first time is not counted unless it is long: kernels are prepared then.
    double seconds = update.measure(rows);
    if (seconds < kLong) seconds = update.measure(rows);
    timed.push_back({update.tokens(rows), seconds});
    const double estimate = estimate_update(timed, all);
    if (rows >= update.rows || seconds >= kLong || (timed.size() > 1 && estimate > kQuick)) return estimate;
    rows = estimate <= kQuick || timed.size() > 1 ? update.rows : more_rows(update, rows, seconds);
  }
}

}  // namespace temper::recipes
