#include "collectives/group.h"

#include "base/error.h"

namespace temper::collectives {

std::string to_string(const Call& call) {
  std::string text = fmt::format("collective {}, {} of '{}'", call.number, call.collective, call.name);
  if (call.shape.ndim() > 0)
    text += fmt::format(", {} {}", temper::to_string(call.dtype), temper::to_string(call.shape));
  if (call.collective.starts_with("broadcast")) text += fmt::format(" from rank {}", call.root);
  return text;
}

bool same(const Call& a, const Call& b) {
  return a.name == b.name && a.collective == b.collective && a.number == b.number && a.shape == b.shape &&
         a.dtype == b.dtype && a.root == b.root;
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
  do_all_reduce(tensor_call(name, "all_reduce", values), values);
}

Tensor Group::all_gather(std::string_view name, const Tensor& part) {
  return do_all_gather(tensor_call(name, "all_gather", part), part);
}

Tensor Group::reduce_scatter(std::string_view name, const Tensor& whole) {
  const Call call = tensor_call(name, "reduce_scatter", whole);
  invariant(whole.dim(0) % size_ == 0,
            fmt::format("[{}] {} ranks cannot have equal parts of the rows", to_string(call), size_));
  return do_reduce_scatter(call, whole);
}

void Group::broadcast(std::string_view name, const Tensor& values, int root) {
  do_broadcast(tensor_call(name, "broadcast", values, root), values);
}

void Group::barrier(std::string_view name) { do_gather_objects({name, "barrier", next()}, {}); }

std::vector<std::string> Group::gather_objects(std::string_view name, std::string mine) {
  return do_gather_objects({name, "gather_objects", next()}, std::move(mine));
}

std::string Group::broadcast_object(std::string_view name, std::string mine, int root) {
  if (rank_ != root) mine.clear();
  Call call{name, "broadcast_object", next()};
  call.root = root;
  return std::move(do_gather_objects(call, std::move(mine)).at(static_cast<size_t>(root)));
}

}  // namespace temper::collectives
