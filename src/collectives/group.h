#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/call.h"
#include "collectives/pairs.h"

namespace temper::collectives {

constexpr double kFailureWaits = 20;  // seconds, in which ranks come that are on their way

std::vector<int> all_ranks(int count);  // 0, 1, …

// The ranks do not meet any more: the group is of no use.
class GroupBroken : public Error {
 public:
  using Error::Error;
};

// Another rank has stopped, and reports why itself: whoever catches this prints nothing.
class StoppedByAnother : public GroupBroken {
 public:
  StoppedByAnother(int rank, const std::string& reason, ErrorKind kind);
};

// One rank's door to the others. All ranks call the same functions, with the same names, in the same order;
// each call waits until all ranks are there. The results are the same bits on every rank and in every run:
// sums are formed in the order of the ranks.
//
// Errors: where ranks meet in different calls, where one does not come within the group's deadline, and where
// one has stopped with an error or has ended, all others get one and the same Error that names the ranks and
// the calls, in this call or the next one; no rank waits forever. The group cannot be used after that.
//
// A rank uses its group from one thread at a time. Tensors travel by the devices' network, host values by the
// hosts': where a room has two networks, neither waits for work of the other.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_alone() const { return size_ == 1; }
  const std::string& name() const { return name_; }  // "world"
  // Of the run that are in this group, in its order.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  std::string describe(const std::string& call) const;  // with the group's name and ranks
  // Of the ranks of the run on this rank's machine: how many they are, and its place among them, which says
  // which of the machine's cores and GPUs are its own.
  struct OnMachine {
    int place = 0, ranks = 1;
  };
  OnMachine on_machine() const { return on_machine_; }
  // How long a rank waits for the others in one collective, in seconds; of this group, the one that it is a
  // part of, and all parts of that.
  void set_deadline(double seconds) { *deadline_ = seconds; }
  double deadline() const { return *deadline_; }

  // Compact tensors of one shape and dtype on all ranks, on a device that the room serves. Alone, a rank gets
  // its own tensor back, not a copy.
  //
  // In place: the sum over the ranks. Floating-point numbers are summed in float32 and rounded once.
  void all_reduce(std::string_view name, const Tensor& values);
  // [n, …] of each rank to [size · n, …], in the order of the ranks.
  Tensor all_gather(std::string_view name, const Tensor& part);
  // Sums `whole`, [size · n, …], over the ranks; rank r gets rows [r · n, (r + 1) · n) of the sum.
  Tensor reduce_scatter(std::string_view name, const Tensor& whole);
  // The same into memory that is there, where a rank's part may be its own rows of the whole.
  void all_gather_into(std::string_view name, const Tensor& part, const Tensor& whole);
  void reduce_scatter_into(std::string_view name, const Tensor& whole, const Tensor& part);
  // Rows in the order of the ranks that they are for, send[r] of them for rank r, to rows in the order of the
  // ranks that they are from: receive[r] of them, as many as rank r sends here. Any may be none.
  Tensor all_to_all(std::string_view name, const Tensor& rows, std::span<const int64_t> send,
                    std::span<const int64_t> receive);
  // In place: the root's.
  void broadcast(std::string_view name, const Tensor& values, int root);
  virtual Pairs& pairs() = 0;  // tensors between two of the ranks

  // Between the two: Together.
  void begin_together() { do_begin_together(); }
  void end_together() { do_end_together(); }
  // Until end_overlap() collectives overlap with the work that this rank launches on its device, which may
  // not touch their operands. Each collective begins after the work launched before it.
  void begin_overlap() { do_begin_overlap(); }
  void end_overlap() { do_end_overlap(); }
  // Overlapped collectives of this group do not wait for those of other groups (a stream of its own): for a
  // group whose results are needed soon.
  void use_own_stream() { do_use_own_stream(); }
  // Gives back what the devices' network holds, memory of devices among it, once this rank's device has done
  // the work launched before. The next collective on tensors connects again. All ranks call it, and have no
  // captured graph with collectives of this group; parts of the group are disconnected by calls of their own.
  void disconnect() { do_disconnect(); }
  // Ranks compare what they call before each collective on tensors, where the room does not do so anyway.
  void set_checks(bool checks) { checks_ = checks; }
  bool checks() const { return checks_; }

  // The group of some of these ranks, this one among them, in their order; it compares calls if this one
  // does. All ranks of this group call it at the same time, each with the part that it is in; it may end
  // before this group does.
  std::unique_ptr<Group> part(std::string name, const std::vector<int>& ranks);

  // Small host values. Objects are bytes, of any length on each rank.
  void barrier(std::string_view name);
  // `failure`: an Error that this rank brings. Ranks that meet in another call then stop for it, instead of
  // for the difference.
  std::vector<std::string> gather_objects(std::string_view name, std::string mine,
                                          const Error* failure = nullptr);
  std::string broadcast_object(std::string_view name, std::string mine, int root);
  // Of plain structs and numbers, too: any number of them, or one, of each rank.
  template <class T>
  std::vector<std::vector<T>> gather(std::string_view name, std::span<const T> mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<std::vector<T>> all;
    for (const std::string& one :
         gather_objects(name, {reinterpret_cast<const char*>(mine.data()), mine.size_bytes()})) {
      std::vector<T>& values = all.emplace_back(one.size() / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), one.data(), one.size());
    }
    return all;
  }
  template <class T>
  std::vector<T> gather(std::string_view name, const T& mine) {
    std::vector<T> values;
    for (const std::vector<T>& one : gather(name, std::span<const T>(&mine, 1))) values.push_back(one.at(0));
    return values;
  }
  template <class T>
  T sum(std::string_view name, T mine) {
    sum(name, std::span<T>(&mine, 1));
    return mine;
  }
  // In place, each by itself. As many on all ranks.
  template <class T>
  void sum(std::string_view name, std::span<T> values) {
    if (is_alone()) return;
    const std::vector<std::vector<T>> all = gather(name, std::span<const T>(values));
    for (const std::vector<T>& one : all) check_count(name, one.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = T{};
      for (const std::vector<T>& one : all) values[i] += one[i];
    }
  }

 protected:
  Group(int rank, int size, std::string name, std::vector<int> world_ranks);
  // Of the hosts of a group of devices.
  void share_deadline(const Group& other) { deadline_ = other.deadline_; }
  std::shared_ptr<const std::atomic<double>> shared_deadline() const { return deadline_; }
  void set_on_machine(OnMachine where) { on_machine_ = where; }
  // "collective 7, all_reduce of 'gradients', float32 [2, 3], in group world (ranks 0 to 3)"
  std::string describe(const Call& call) const { return describe(to_string(call)); }

 private:
  // What a room carries. The calls are numbered and their tensors checked.
  virtual void do_all_reduce(const Call& call, const Tensor& values) = 0;
  virtual void do_all_gather(const Call& call, const Tensor& part, const Tensor& whole) = 0;
  virtual void do_reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) = 0;
  virtual void do_broadcast(const Call& call, const Tensor& values) = 0;
  virtual void do_all_to_all(const Call& call, const RowExchange& exchange) = 0;
  virtual std::vector<std::string> do_gather_objects(const Call& call, std::string mine) = 0;
  virtual void do_disconnect() {}
  virtual void do_begin_together() {}
  virtual void do_end_together() {}
  virtual void do_begin_overlap() {}
  virtual void do_use_own_stream() {}
  virtual void do_end_overlap() {}
  // `ranks` of the whole run; `number` counts the parts that this group has had.
  virtual std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int number) = 0;

  int64_t next() {
    return is_alone() ? 0 : ++calls_;
  }  // a rank alone counts nothing, and may be any thread's
  Call tensor_call(std::string_view name, std::string_view collective, const Tensor& tensor, int root = 0);
  void check_rows(const Call& call) const;
  void check_count(std::string_view name, size_t found, size_t expected) const;

  const int rank_, size_;
  const std::string name_;
  const std::vector<int> world_ranks_;
  OnMachine on_machine_;
  std::shared_ptr<std::atomic<double>> deadline_;
  int64_t calls_ = 0;
  int parts_ = 0;
  bool checks_ = false;
};

// Collectives that are asked for while one lives may start together, which is faster for many small ones.
// What they write is there after its end.
class Together {
 public:
  explicit Together(Group& group) : group_(group), exceptions_(std::uncaught_exceptions()) {
    group_.begin_together();
  }
  // Throws the errors of the start, unless an exception is already being thrown.
  ~Together() noexcept(false);
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

 private:
  Group& group_;
  const int exceptions_;
};

}  // namespace temper::collectives
