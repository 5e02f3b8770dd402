#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "collectives/pairs.h"

namespace temper::collectives {

// What a rank says of a call before the data: of collectives to all others, of a transfer to the rank that
// receives it. Both are alike, so that a rank that is in the one is understood by a rank that is in the
// other. It takes microseconds.
struct Header {
  std::array<char, 80> name{};
  std::array<char, 24> collective{};
  int64_t number = 0;
  std::array<int64_t, Shape::kMaxDims> dims{};
  int32_t num_dims = 0, dtype = 0, root = 0, has_failed = 0;
  int64_t bytes = 0;  // of an object that this rank brings, or of rows for whom it tells

  Header() = default;
  Header(const Call& call, int64_t object_bytes)
      : number(call.number),
        num_dims(call.shape.ndim()),
        dtype(static_cast<int32_t>(call.dtype)),
        root(call.root),
        has_failed(call.failure != nullptr ? 1 : 0),
        bytes(object_bytes) {
    put(call.name, name);
    put(call.collective, collective);
    for (int i = 0; i < num_dims; ++i) dims[static_cast<size_t>(i)] = call.shape[i];
  }
  explicit Header(const PairCall& call)
      : Header({call.name, kTransfer, call.number, call.shape, call.dtype, call.from}, 0) {}

  Call call() const {
    std::vector<int64_t> sizes(dims.begin(), dims.begin() + num_dims);
    return {name.data(), collective.data(), number, Shape(sizes), static_cast<DType>(dtype), root};
  }
  bool is_of_transfer() const { return collective.data() == kTransfer; }
  // Without the tensor's memory.
  PairCall pair_call(int from, int to) const {
    const Call found = call();
    return {found.name, found.number, from, to, found.shape, found.dtype};
  }

 private:
  static constexpr std::string_view kTransfer = "transfer";

  template <size_t N>
  static void put(std::string_view text, std::array<char, N>& to) {
    std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
  }
};

}  // namespace temper::collectives
