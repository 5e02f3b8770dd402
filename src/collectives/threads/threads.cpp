#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

#include "base/pinning.h"
#include "base/registry.h"
#include "base/threads.h"
#include "collectives/launch.h"
#include "collectives/threads/meeting.h"

namespace temper::collectives {
namespace {

// Part `rank` of `size` of that many elements.
std::pair<int64_t, int64_t> part_of(int64_t count, int rank, int size) {
  return {count * rank / size, count * (rank + 1) / size};
}

template <class T>
const T* brought_by(const Meeting::Brought& brought, size_t rank) {
  return static_cast<const T*>(brought[rank]);
}

// Elements [begin, end) of all ranks' tensors, in the order of the ranks; take(i, sum) for each.
template <class T, class Take>
void sum_elements(const Meeting::Brought& brought, int64_t begin, int64_t end, const Take& take) {
  std::vector<const T*> from;
  for (size_t r = 0; r < brought.size(); ++r) from.push_back(brought_by<Tensor>(brought, r)->data<T>());
  for (int64_t i = begin; i < end; ++i) {
    float sum = static_cast<float>(from[0][i]);
    for (size_t r = 1; r < from.size(); ++r) sum += static_cast<float>(from[r][i]);
    take(i, T(sum));
  }
}

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int rank, int size, Meeting& meeting) : Group(rank, size), meeting_(meeting) {}

 private:
  // Each rank sums a part of the elements, and writes it for all: nobody else reads or writes that part.
  void do_all_reduce(const Call& call, const Tensor& values) override {
    check_sum(call, values);
    meeting_.meet(rank(), call, &values, [&](const Meeting::Brought& all) {
      const auto [begin, end] = part_of(values.numel(), rank(), size());
      visit_float(values.dtype(), [&, begin = begin, end = end]<class T>() {
        std::vector<T*> to;
        for (size_t r = 0; r < all.size(); ++r) to.push_back(brought_by<Tensor>(all, r)->data<T>());
        sum_elements<T>(all, begin, end, [&](int64_t i, T sum) {
          for (T* one : to) one[i] = sum;
        });
      });
    });
  }

  Tensor do_all_gather(const Call& call, const Tensor& part) override {
    check_device(call, part);
    Shape shape = part.shape();
    shape[0] *= size();
    const Tensor whole = Tensor::empty(shape, part.dtype(), MemoryTag::kWorkspace);
    meeting_.meet(rank(), call, &part, [&](const Meeting::Brought& all) {
      for (size_t r = 0; r < all.size(); ++r)
        std::memcpy(static_cast<std::byte*>(whole.raw()) + static_cast<int64_t>(r) * part.bytes(),
                    brought_by<Tensor>(all, r)->raw(), static_cast<size_t>(part.bytes()));
    });
    return whole;
  }

  Tensor do_reduce_scatter(const Call& call, const Tensor& whole) override {
    check_sum(call, whole);
    Shape shape = whole.shape();
    shape[0] /= size();
    const Tensor mine = Tensor::empty(shape, whole.dtype(), MemoryTag::kWorkspace);
    meeting_.meet(rank(), call, &whole, [&](const Meeting::Brought& all) {
      visit_float(whole.dtype(), [&]<class T>() {
        const int64_t first = mine.numel() * rank();
        T* to = mine.data<T>();
        sum_elements<T>(all, first, first + mine.numel(), [&](int64_t i, T sum) { to[i - first] = sum; });
      });
    });
    return mine;
  }

  void do_broadcast(const Call& call, const Tensor& values) override {
    check_device(call, values);
    meeting_.meet(rank(), call, &values, [&](const Meeting::Brought& all) {
      if (rank() != call.root)
        std::memcpy(values.raw(), brought_by<Tensor>(all, static_cast<size_t>(call.root))->raw(),
                    static_cast<size_t>(values.bytes()));
    });
  }

  std::vector<std::string> do_gather_objects(const Call& call, std::string mine) override {
    std::vector<std::string> objects(static_cast<size_t>(size()));
    meeting_.meet(rank(), call, &mine, [&](const Meeting::Brought& all) {
      for (size_t r = 0; r < all.size(); ++r) objects[r] = *brought_by<std::string>(all, r);
    });
    return objects;
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

  Meeting& meeting_;
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
  Meeting meeting(options.ranks, options.deadline);
  FirstError first;
  const int share = std::max(1, num_threads() / options.ranks);
  // Does what a rank does; what that throws, the others learn.
  const auto guarded = [&](int rank, const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      first.keep(std::current_exception());
      meeting.stop(rank, error.what(), error.kind());
    } catch (const std::exception& error) {
      first.keep(std::current_exception());
      meeting.stop(rank, error.what(), ErrorKind::kDefect);
    } catch (...) {
      first.keep(std::current_exception());
      meeting.stop(rank, "an exception of unknown type", ErrorKind::kDefect);
    }
  };
  const auto be_rank = [&](int rank) {
    guarded(rank, [&] {
      leave_core();
      const ThreadLimit limit(share);
      ThreadGroup group(rank, options.ranks, meeting);
      body(group);
      meeting.leave(rank);
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
