#include "collectives/call.h"

#include <numeric>

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

std::string describe_mismatch(std::string_view first, int rank, std::string_view other) {
  return fmt::format(
      "ranks meet in different calls: rank 0 in {}; rank {} in {}. All ranks must make the same calls in the "
      "same order",
      first, rank, other);
}

RowExchange row_exchange(Call& call, const Tensor& rows, std::span<const int64_t> send,
                         std::span<const int64_t> receive) {
  const auto total = [](std::span<const int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  invariant(total(send) == rows.dim(0),
            fmt::format("[{}] rows for each rank, as many as there are", to_string(call)));
  Shape shape = rows.shape();
  shape[0] = total(receive);
  call.shape[0] = 1;
  RowExchange exchange{
      rows, Tensor::empty(shape, rows.dtype(), MemoryTag::kActivations, rows.device()), {}, {}, 0};
  exchange.row_bytes = call.shape.numel() * size_of(rows.dtype());
  for (const int64_t count : send) exchange.send.push_back(count * exchange.row_bytes);
  for (const int64_t count : receive) exchange.receive.push_back(count * exchange.row_bytes);
  return exchange;
}

void fail_rows(const Call& call, int rank, int64_t found, int64_t expected) {
  throw Error(fmt::format("[collectives] {}: rank {} sends {} rows, expected {}", to_string(call), rank,
                          found, expected),
              ErrorKind::kDefect);
}

}  // namespace temper::collectives
