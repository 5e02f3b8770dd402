#include "recipes/costs/rank_clock.h"

#include <algorithm>
#include <string_view>

namespace temper::recipes {
namespace {

using collectives::PlannedCall;

constexpr std::string_view kForward = "forward", kBackward = "backward", kUpdate = "update";

size_t index_of(PlannedCall::Place place) { return place == PlannedCall::Place::kOwnOrder ? 1 : 0; }

}  // namespace

RankWork RankWork::operator-(const RankWork& earlier) const {
  return {seconds - earlier.seconds, waiting - earlier.waiting, to_host - earlier.to_host,
          to_network - earlier.to_network, flops - earlier.flops};
}

RankWork RankWork::plus(const RankWork& more, double times) const {
  return {seconds + times * more.seconds, waiting + times * more.waiting, to_host + times * more.to_host,
          to_network + times * more.to_network, flops + times * more.flops};
}

RankClock::RankClock(const Machine& machine, int ranks_of_host)
    : machine_(machine),
      ranks_of_host_(ranks_of_host),
      share_(machine.shares_cores ? 1.0 / ranks_of_host : 1) {}

void RankClock::begins(std::string_view span, const trace::Work& work) {
  if (span == kForward || span == kBackward) {
    if (passes_.empty()) before_passes_ = now_;
    pass_begin_ = now_;
  }
  if (span == kUpdate) update_begin_ = now_;
  now_.flops += work.flops;
  compute(machine_.seconds(span, work) / share_);
}

void RankClock::ends(std::string_view span) {
  if (span == kForward || span == kBackward) passes_.push_back({span == kForward, now_ - pass_begin_});
  if (span == kUpdate) update_ = now_ - update_begin_;
}

// While collectives are under way next to it, work takes longer.
void RankClock::compute(double seconds) {
  while (seconds > 0) {
    double slowdown = 0, until = 0;
    for (const Overlapped& each : overlapped_)
      if (each.until > now_.seconds) {
        slowdown = std::max(slowdown, each.slowdown);
        until = until == 0 ? each.until : std::min(until, each.until);
      }
    const double speed = 1 - slowdown, room = until - now_.seconds;
    if (until == 0 || seconds <= speed * room) {
      now_.seconds += seconds / speed;
      return;
    }
    seconds -= speed * room;
    now_.seconds = until;
  }
}

void RankClock::wait_until(double moment) {
  if (moment <= now_.seconds) return;
  now_.waiting += moment - now_.seconds;
  now_.seconds = moment;
}

void RankClock::asked(const PlannedCall& call) {
  if (!trace::on()) return;  // of an update that is not listened to
  const CollectiveTime time = time_of(call, machine_, ranks_of_host_);
  now_.to_host += time.to_host;
  now_.to_network += time.to_network;
  if (call.kind == PlannedCall::Kind::kPairs) {
    const auto tensors = static_cast<double>(call.ranks.size() - 1);
    transfers_ += tensors;
    transfer_seconds_ += time.seconds;
  }
  if (call.place == PlannedCall::Place::kInOrder) return wait_until(now_.seconds + time.seconds);
  Overlapped& each = overlapped_[index_of(call.place)];
  each.until = std::max(each.until, now_.seconds) + time.seconds;
  each.slowdown = time.to_network > 0 ? machine_.network.slowdown : machine_.host.slowdown;
}

void RankClock::waits(PlannedCall::Place place) {
  if (trace::on()) wait_until(overlapped_[index_of(place)].until);
}

}  // namespace temper::recipes
