#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/sources/mixture.h"
#include "data/sources/order.h"

namespace temper::data {

// The rows of a mixture in the order of training, tokenized before they are asked for. What it gives depends
// on the order alone, not on the number of threads. The mixture must outlive it; calls come from one thread.
class ReadAhead {
 public:
  // threads 0: rows are read when they are asked for, some at once on the process's pool.
  // num_epochs 0: without end.
  ReadAhead(const Mixture& mixture, RowOrder order, int64_t num_epochs, int64_t threads);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  std::optional<int64_t> next_epoch();  // of the row that take() gives; nothing at the end

  struct Row {
    int64_t row = 0, epoch = 0;
    ReadRow read;
  };
  Row take();

  const RowOrder::Place& place() const { return place_; }  // behind the row that take() gave last
  double progress() const {
    return order_.progress(place_);
  }  // epochs whose rows were taken, for example 1.25
  double epoch_rows() const { return order_.epoch_rows(); }
  void restore(const RowOrder::Place& place);

 private:
  struct Slot {
    Row row;
    RowOrder::Place after;
    std::exception_ptr failure;
    bool done = false;
  };
  using SlotPtr = std::shared_ptr<Slot>;
  void ask();  // fills the queue
  void work();
  void join();
  void read(Slot& slot) const;

  const Mixture* mixture_;
  RowOrder order_;  // ahead of place_ by what is queued
  RowOrder::Place place_;
  int64_t num_epochs_;
  std::deque<SlotPtr> queue_;  // in order

  std::mutex mutex_;  // guards what follows and the slots' `done`
  std::condition_variable asked_, done_;
  std::deque<SlotPtr> unread_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace temper::data
