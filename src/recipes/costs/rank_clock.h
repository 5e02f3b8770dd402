#pragma once
#include <array>
#include <vector>

#include "recipes/costs/collective_times.h"
#include "recipes/costs/update_listener.h"

namespace temper::recipes {

// What a rank has done, and how long it took.
struct RankWork {
  double seconds = 0;
  double waiting = 0;  // of these, in which its device computes nothing because a collective is not done
  double to_host = 0, to_network = 0;  // bytes that left it
  double flops = 0;                    // of products; what is computed again counts again

  RankWork operator-(const RankWork& earlier) const;
  // And `times` as much of `more`.
  RankWork plus(const RankWork& more, double times) const;
};

// The forward or backward pass of a micro-batch.
struct PassWork {
  bool is_forward = false;
  RankWork work;
};

// Turns what an update asks of one rank into time, in its order. A device computes one op after the other.
// Collectives are in this order, too, or, while they overlap with it, in one of their own: they begin when
// what was asked for before them is done, slow down what is computed at the same time (Link::slowdown), and
// are waited for where the program waits.
class RankClock final : public UpdateListener {
 public:
  // `ranks_of_host`: that follow one another on each host; of ranks that share cores each has a part of the
  // machine's speed.
  RankClock(const Machine& machine, int ranks_of_host);

  void begins(std::string_view span, const trace::Work& work) override;
  void ends(std::string_view span) override;
  void asked(const collectives::PlannedCall& call) override;
  void waits(collectives::PlannedCall::Place place) override;

  const RankWork& all() const { return now_; }
  const RankWork& before_passes() const { return before_passes_; }
  const std::vector<PassWork>& passes() const { return passes_; }  // in their order
  const RankWork& update() const { return update_; }               // sums, norm, optimizer
  // Of one tensor that travels between two stages; 0 where none did.
  double seconds_of_transfer() const { return transfers_ == 0 ? 0 : transfer_seconds_ / transfers_; }

 private:
  void compute(double seconds);
  void wait_until(double moment);

  const Machine& machine_;
  const int ranks_of_host_;
  const double share_;  // of the machine's speed
  RankWork now_, before_passes_, pass_begin_, update_begin_, update_;
  // When the collectives that do not wait for the device's other work are done, and how much they slow that
  // down until then.
  struct Overlapped {
    double until = 0, slowdown = 0;
  };
  std::array<Overlapped, 2> overlapped_;
  std::vector<PassWork> passes_;
  double transfers_ = 0, transfer_seconds_ = 0;
};

}  // namespace temper::recipes
