#include "parallel/pipeline/stage_transfers.h"

namespace temper::parallel {

int64_t StageTransfers::begin(std::span<const collectives::Transfer> sent,
                              std::span<const collectives::Transfer> received) {
  wait_for(begun_ + 1 - kMostUnderWay);
  under_way_.push_back(pairs_.begin_exchange(sent, received));
  return ++begun_;
}

void StageTransfers::wait_for(int64_t transfer) {
  while (!is_done(transfer)) {
    under_way_.front()->wait();
    under_way_.pop_front();
  }
}

}  // namespace temper::parallel
