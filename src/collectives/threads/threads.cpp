#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <thread>

#include "base/parts/registry.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"
#include "collectives/launch.h"
#include "collectives/sums.h"
#include "collectives/threads/meeting.h"
#include "collectives/threads/pairs.h"

namespace temper::collectives {
namespace {

template <class T>
const T* brought_by(const Meeting::Brought& brought, size_t rank) {
  return static_cast<const T*>(brought[rank]);
}

// Where each rank's elements begin, from `first` on.
template <class T>
std::vector<T*> pointers(const Meeting::Brought& brought, int64_t first) {
  std::vector<T*> all;
  for (size_t r = 0; r < brought.size(); ++r)
    all.push_back(brought_by<Tensor>(brought, r)->data<T>() + first);
  return all;
}

template <class T>
void sum_into(const Meeting::Brought& brought, int64_t first, int64_t count, T* to) {
  const std::vector<T*> all = pointers<T>(brought, first);
  const std::vector<const T*> from(all.begin(), all.end());
  sum_elements<T>(from, count, to);
}

// The meetings of all groups of a run. One is made by the first of its ranks.
class Meetings {
 public:
  std::shared_ptr<Meeting> of(const std::string& name, const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& meeting = all_[{name, ranks}];
    if (!meeting) meeting = std::make_shared<Meeting>(static_cast<int>(ranks.size()));
    return meeting;
  }
  // The rank comes to none of them any more.
  void stop(int rank, const std::string& reason, ErrorKind kind) {
    const std::lock_guard lock(mutex_);
    for (const auto& [group, meeting] : all_) meeting->stop(rank, reason, kind);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Meeting>> all_;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int world_rank, std::string name, const std::vector<int>& ranks, const std::string& key,
              Meetings& meetings)
      : Group(static_cast<int>(std::find(ranks.begin(), ranks.end(), world_rank) - ranks.begin()),
              static_cast<int>(ranks.size()), std::move(name), ranks),
        meetings_(meetings),
        shared_(meetings.of(key, ranks)),
        meeting_(*shared_),
        key_(key),
        pairs_(*this, meeting_) {}
  Pairs& pairs() override { return pairs_; }
  void leave() { meeting_.leave(rank()); }

 private:
  // Each rank sums a part of the elements, and writes it for all: no other rank reads or writes that part.
  void do_all_reduce(const Call& call, const Tensor& values) override {
    check_sum(call, values);
    meeting_.meet(rank(), call, &values, deadline(), [&](const Meeting::Brought& all) {
      const auto [begin, end] = part_of(values.numel(), rank(), size());
      visit_float(values.dtype(), [&, begin = begin, end = end]<class T>() {
        const std::vector<T*> to = pointers<T>(all, begin);
        sum_into<T>(all, begin, end - begin, to[0]);
        for (T* const other : std::span(to).subspan(1)) std::copy_n(to[0], end - begin, other);
      });
    });
  }

  void do_all_gather(const Call& call, const Tensor& part, const Tensor& whole) override {
    check_device(call, part);
    meeting_.meet(rank(), call, &part, deadline(), [&](const Meeting::Brought& all) {
      for (size_t r = 0; r < all.size(); ++r) {
        std::byte* const to = static_cast<std::byte*>(whole.raw()) + static_cast<int64_t>(r) * part.bytes();
        const void* const from = brought_by<Tensor>(all, r)->raw();
        if (to != from) std::memcpy(to, from, static_cast<size_t>(part.bytes()));
      }
    });
  }

  void do_reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) override {
    check_sum(call, whole);
    meeting_.meet(rank(), call, &whole, deadline(), [&](const Meeting::Brought& all) {
      visit_float(whole.dtype(),
                  [&]<class T>() { sum_into<T>(all, part.numel() * rank(), part.numel(), part.data<T>()); });
    });
  }

  void do_broadcast(const Call& call, const Tensor& values) override {
    check_device(call, values);
    meeting_.meet(rank(), call, &values, deadline(), [&](const Meeting::Brought& all) {
      if (rank() != call.root)
        std::memcpy(values.raw(), brought_by<Tensor>(all, static_cast<size_t>(call.root))->raw(),
                    static_cast<size_t>(values.bytes()));
    });
  }

  void do_all_to_all(const Call& call, const RowExchange& exchange) override {
    check_device(call, exchange.rows);
    const auto own = static_cast<size_t>(rank());
    meeting_.meet(rank(), call, &exchange, deadline(), [&](const Meeting::Brought& all) {
      auto* to = static_cast<std::byte*>(exchange.received.raw());
      for (size_t r = 0; r < all.size(); ++r) {
        const RowExchange& theirs = *brought_by<RowExchange>(all, r);
        if (theirs.send[own] != exchange.receive[r])
          fail_rows(call, static_cast<int>(r), theirs.send[own] / exchange.row_bytes,
                    exchange.receive[r] / exchange.row_bytes);
        const auto before = theirs.send.begin() + static_cast<std::ptrdiff_t>(own);
        const auto* const from = static_cast<const std::byte*>(theirs.rows.raw()) +
                                 std::accumulate(theirs.send.begin(), before, int64_t{0});
        to = std::copy_n(from, exchange.receive[r], to);
      }
    });
  }

  std::vector<std::string> do_gather_objects(const Call& call, std::string mine) override {
    std::vector<std::string> objects(static_cast<size_t>(size()));
    meeting_.meet(rank(), call, &mine, deadline(), [&](const Meeting::Brought& all) {
      for (size_t r = 0; r < all.size(); ++r) objects[r] = *brought_by<std::string>(all, r);
    });
    return objects;
  }

  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int number) override {
    const std::string key = fmt::format("{}/{} {}", key_, number, name);
    return std::make_unique<ThreadGroup>(world_ranks()[static_cast<size_t>(rank())], std::move(name), ranks,
                                         key, meetings_);
  }

  static void check_device(const Call& call, const Tensor& tensor) {
    if (tensor.device() != Device{})
      fail("[{}] ranks that are threads exchange tensors of the CPU, not of {}", to_string(call),
           to_string(tensor.device()));
  }
  static void check_sum(const Call& call, const Tensor& tensor) {
    check_device(call, tensor);
    invariant(is_float(tensor.dtype()),
              fmt::format("[{}] only floating-point tensors are summed", to_string(call)));
  }

  Meetings& meetings_;
  const std::shared_ptr<Meeting> shared_;
  Meeting& meeting_;
  const std::string key_;  // of the meeting, also where parts have the same name
  ThreadPairs pairs_;
};

// The first error of all ranks: the others follow from it.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

// The ranks share the pool's threads equally.
void launch_threads(const LaunchOptions& options, const Body& body) {
  if (options.ranks < 1) fail("[collectives] {} ranks are asked for; expected at least 1", options.ranks);
  Meetings meetings;
  FirstError first;
  const std::vector<int> all = all_ranks(options.ranks);
  const int share = std::max(1, num_threads() / options.ranks);
  // Does what a rank does; what that throws, the others learn.
  const auto guarded = [&](int rank, const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      first.keep(std::current_exception());
      meetings.stop(rank, error.what(), error.kind());
    } catch (const std::exception& error) {
      first.keep(std::current_exception());
      meetings.stop(rank, error.what(), ErrorKind::kDefect);
    } catch (...) {
      first.keep(std::current_exception());
      meetings.stop(rank, "an exception of unknown type", ErrorKind::kDefect);
    }
  };
  const auto be_rank = [&](int rank) {
    guarded(rank, [&] {
      leave_core();
      const ThreadLimit limit(share);
      ThreadGroup group(rank, "world", all, "world", meetings);
      group.set_deadline(options.deadline);
      body(group);
      group.leave();
    });
  };
  std::vector<std::thread> threads;
  // Those that have begun end with an error where another cannot.
  for (int rank = 0; rank < options.ranks; ++rank)
    guarded(rank, [&] { threads.emplace_back(be_rank, rank); });
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace

void register_threads() { registry<Launch>().add("threads", launch_threads); }

}  // namespace temper::collectives
