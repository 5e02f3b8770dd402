#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace temper::collectives {

class Group;

// A tensor for one other rank of a group, or from one.
struct Transfer {
  std::string_view name;  // what for: "activations of micro-batch 3"
  Tensor tensor;          // of any shape, compact; both ranks know shape and dtype
  int rank = 0;           // that it goes to, or comes from
};

// A transfer as a room carries it.
struct PairCall {
  std::string_view name;
  int64_t number = 0;  // counted from 1 in both ranks, for each pair and direction by itself
  int from = 0, to = 0;
  Shape shape = {};
  DType dtype = DType::kU8;
  Tensor tensor = {};  // of that shape
};
bool same(const PairCall& a, const PairCall& b);  // whatever the tensor's memory
std::string to_string(const PairCall& call);      // "transfer 3 from rank 0 to rank 1 of 'x', float32 [2, 3]"
// Of any text that the two ranks have of their calls, as to_string() has them.
std::string describe_mismatch(int from, std::string_view sent, int to, std::string_view received);

// What one rank has to send and to receive at a time, in the order in which it was asked for.
struct PairCalls {
  std::vector<PairCall> sent, received;
};
// An Error where a tensor is not on the CPU: of rooms that have no way to another device.
void check_on_hosts(const PairCalls& calls);

// Transfers that have begun.
class TransfersUnderWay {
 public:
  virtual ~TransfersUnderWay() = default;  // waits, too
  // Work that is given to the device later comes after them, and after those of this rank that began earlier.
  virtual void wait() {}
};

// Tensors between two ranks of a group, in which no other rank takes part: the group's collectives and other
// pairs neither count them nor wait for them. What one rank sends to another arrives in the order in which it
// was sent, and both name it alike.
//
// A call returns when all that it sends has been received and all that it receives is there; on devices that
// work in order, when that work has been given to them. Assume that send() waits until the other rank
// receives: two ranks that both send first wait for each other. exchange() lets all its transfers progress
// together, in whatever order the other ranks come to them, so that two ranks may exchange() whatever each
// has for the other.
//
// Memory: what is sent may neither change nor be freed before the call returns, and what is received may not
// be read; while collectives overlap with a device's work (Group::begin_overlap), not before end_overlap().
// Work that is given to the device's stream later comes later there, and the tensors are kept alive until
// then: only work elsewhere has to wait.
//
// Errors: another name, number, shape or dtype on the other side, or a rank that does not come within the
// group's deadline, that has ended or has stopped, is an Error as of the group's collectives (group.h), which
// all ranks of the group get in this call or the next one. Where ranks have a GPU each, shapes are compared
// if the group compares calls (Group::set_checks).
class Pairs {
 public:
  explicit Pairs(const Group& group);  // which lives longer
  virtual ~Pairs() = default;
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  // Before the first transfer, and again after Group::disconnect(): all ranks of the group call it, each with
  // the ranks that it has transfers with, which name this one, too. Opens the ways between devices in one
  // order, with a message over each; hosts need none.
  void connect(std::span<const int> partners);

  void send(std::string_view name, const Tensor& values, int to);
  void receive(std::string_view name, const Tensor& values, int from);
  // At most kMostTransfers each.
  void exchange(std::span<const Transfer> sent, std::span<const Transfer> received);
  // As exchange(). Where ranks have devices that work in order, work that is given to them later does not
  // wait for the transfers, which begin after the work before them and one after the other; until the
  // result's wait() that work may neither read what is received nor write to what is sent. Elsewhere they are
  // done.
  std::unique_ptr<TransfersUnderWay> begin_exchange(std::span<const Transfer> sent,
                                                    std::span<const Transfer> received);

  static constexpr size_t kMostTransfers = 64;

 protected:
  const Group& group() const { return group_; }

 private:
  virtual void do_connect(const std::vector<int>& /*partners*/) {}
  virtual void do_exchange(const PairCalls& calls) = 0;
  virtual std::unique_ptr<TransfersUnderWay> do_begin(const PairCalls& calls);
  PairCalls numbered(std::span<const Transfer> sent, std::span<const Transfer> received);
  void check_partner(std::string_view what, int rank) const;
  void check_transfers(std::span<const Transfer> transfers) const;

  const Group& group_;
  std::vector<int64_t> sent_, received_;  // transfers so far, by the other rank
};

}  // namespace temper::collectives
