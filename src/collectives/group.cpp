#include "collectives/group.h"

#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "base/tracing/trace.h"
#include "collectives/launch.h"

namespace temper::collectives {
namespace {

// A span of a profile; its work is what this rank holds of what travels.
template <class F>
void traced(const Call& call, const Tensor& tensor, const F& f) {
  const trace::Span span(call.collective, [&] {
    return trace::OpWork{{.sent = static_cast<double>(tensor.bytes())}, {}};
  });
  f();
}

}  // namespace

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

StoppedByAnother::StoppedByAnother(int rank, const std::string& reason, ErrorKind kind)
    : GroupBroken(fmt::format("[collectives] rank {} stopped: {}", rank, reason), kind) {}

Group::Group(int rank, int size, std::string name, std::vector<int> world_ranks)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      world_ranks_(std::move(world_ranks)),
      deadline_(std::make_shared<std::atomic<double>>(LaunchOptions().deadline)) {}

std::string Group::describe(const std::string& call) const {
  std::vector<std::string> ranks;
  for (const int rank : world_ranks_) ranks.push_back(std::to_string(rank));
  return fmt::format("{}, in group {} (ranks {})", call, name_, join(ranks));
}

std::unique_ptr<Group> Group::part(std::string name, const std::vector<int>& ranks) {
  std::vector<int> of_world;
  for (const int rank : ranks) of_world.push_back(world_ranks_.at(static_cast<size_t>(rank)));
  std::unique_ptr<Group> made = do_part(std::move(name), std::move(of_world), ++parts_);
  made->on_machine_ = on_machine_;
  made->deadline_ = deadline_;
  made->checks_ = checks_;
  return made;
}

Call Group::tensor_call(std::string_view name, std::string_view collective, const Tensor& tensor, int root) {
  invariant(tensor.defined() && tensor.is_contiguous() && tensor.ndim() > 0,
            fmt::format("{} of '{}' takes compact tensors", collective, name));
  return {name, collective, next(), tensor.shape(), tensor.dtype(), root};
}

void Group::check_count(std::string_view name, size_t found, size_t expected) const {
  invariant(found == expected, fmt::format("[collective {}] the ranks sum {} and {} values of '{}'", calls_,
                                           expected, found, name));
}

void Group::all_reduce(std::string_view name, const Tensor& values) {
  const Call call = tensor_call(name, "all_reduce", values);
  if (!is_alone()) traced(call, values, [&] { do_all_reduce(call, values); });
}

Tensor Group::all_gather(std::string_view name, const Tensor& part) {
  if (is_alone()) return part;
  Shape shape = part.shape();
  shape[0] *= size_;
  Tensor whole = Tensor::empty(shape, part.dtype(), MemoryTag::kWorkspace, part.device());
  const Call call = tensor_call(name, "all_gather", part);
  traced(call, whole, [&] { do_all_gather(call, part, whole); });
  return whole;
}

void Group::all_gather_into(std::string_view name, const Tensor& part, const Tensor& whole) {
  const Call call = tensor_call(name, "all_gather", part);
  invariant(whole.is_contiguous() && whole.dtype() == part.dtype() && whole.numel() == size_ * part.numel(),
            fmt::format("[{}] the whole is {}", to_string(call), to_string(whole.shape())));
  if (!is_alone()) return traced(call, whole, [&] { do_all_gather(call, part, whole); });
  if (whole.raw() != part.raw()) whole.copy_from(part);
}

// Of a tensor of that many rows, when they can be cut.
void Group::check_rows(const Call& call) const {
  invariant(call.shape[0] % size_ == 0,
            fmt::format("[{}] {} ranks cannot have equal parts of the rows", to_string(call), size_));
}

Tensor Group::reduce_scatter(std::string_view name, const Tensor& whole) {
  if (is_alone()) return whole;
  const Call call = tensor_call(name, "reduce_scatter", whole);
  check_rows(call);
  Shape shape = whole.shape();
  shape[0] /= size_;
  Tensor part = Tensor::empty(shape, whole.dtype(), MemoryTag::kWorkspace, whole.device());
  traced(call, whole, [&] { do_reduce_scatter(call, whole, part); });
  return part;
}

void Group::reduce_scatter_into(std::string_view name, const Tensor& whole, const Tensor& part) {
  const Call call = tensor_call(name, "reduce_scatter", whole);
  check_rows(call);
  invariant(part.is_contiguous() && part.dtype() == whole.dtype() && whole.numel() == size_ * part.numel(),
            fmt::format("[{}] the part is {}", to_string(call), to_string(part.shape())));
  if (!is_alone()) return traced(call, whole, [&] { do_reduce_scatter(call, whole, part); });
  if (whole.raw() != part.raw()) part.copy_from(whole);
}

Tensor Group::all_to_all(std::string_view name, const Tensor& rows, std::span<const int64_t> send,
                         std::span<const int64_t> receive) {
  if (is_alone()) return rows;
  Call call = tensor_call(name, "all_to_all", rows);
  invariant(std::ssize(send) == size_ && std::ssize(receive) == size_,
            fmt::format("[{}] rows for each rank, as many as there are", to_string(call)));
  const RowExchange exchange = row_exchange(call, rows, send, receive);
  traced(call, rows, [&] { do_all_to_all(call, exchange); });
  return exchange.received;
}

void Group::broadcast(std::string_view name, const Tensor& values, int root) {
  const Call call = tensor_call(name, "broadcast", values, root);
  if (!is_alone()) traced(call, values, [&] { do_broadcast(call, values); });
}

void Group::barrier(std::string_view name) { do_gather_objects({name, "barrier", next()}, {}); }

std::vector<std::string> Group::gather_objects(std::string_view name, std::string mine,
                                               const Error* failure) {
  const trace::Span span("host values");
  Call call{name, "gather_objects", next()};
  call.failure = failure;
  return do_gather_objects(call, std::move(mine));
}

std::string Group::broadcast_object(std::string_view name, std::string mine, int root) {
  if (rank_ != root) mine.clear();
  Call call{name, "broadcast_object", next()};
  call.root = root;
  return std::move(do_gather_objects(call, std::move(mine)).at(static_cast<size_t>(root)));
}

Together::~Together() noexcept(false) {
  try {
    group_.end_together();
  } catch (...) {
    if (std::uncaught_exceptions() == exceptions_) throw;
  }
}

}  // namespace temper::collectives
