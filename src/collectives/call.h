#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tensor/tensor.h"

// What ranks ask of one another.
namespace temper::collectives {

// What one rank asks for. Ranks that meet must ask for the same.
struct Call {
  std::string_view name;        // what for: "gradients"
  std::string_view collective;  // "all_reduce"
  int64_t number = 0;           // counted from 1 in each rank
  Shape shape = {};  // of the tensor, or of one of its rows where each rank brings its own number of them;
                     // none for host values
  DType dtype = DType::kU8;
  int root = 0;
  // Why this rank brings nothing: what the others hear where they are elsewhere.
  const Error* failure = nullptr;
};
std::string to_string(const Call& call);  // "collective 7, all_reduce of 'gradients', float32 [2, 3]"
bool same(const Call& a, const Call& b);
// Ranks meet in different calls: of rank 0 and of another one, as to_string() has them.
std::string describe_mismatch(std::string_view first, int rank, std::string_view other);

// What all_to_all moves: rows in the order of the ranks that they are for, to rows in the order of the ranks
// that they are from.
struct RowExchange {
  Tensor rows, received;               // [rows, …]
  std::vector<int64_t> send, receive;  // in bytes, by rank
  int64_t row_bytes = 0;
};
// send[r] of `rows` for rank r, and memory for receive[r] from it. `call` is of one row then.
RowExchange row_exchange(Call& call, const Tensor& rows, std::span<const int64_t> send,
                         std::span<const int64_t> receive);
// A rank sends another number of rows than this one expects.
[[noreturn]] void fail_rows(const Call& call, int rank, int64_t found, int64_t expected);

}  // namespace temper::collectives
