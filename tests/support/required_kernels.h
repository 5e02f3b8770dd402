#pragma once
#include <algorithm>
#include <climits>
#include <set>

#include "base/parts/rooms.h"
#include "ops/hardware_table.h"
#include "ops/op_info.h"
#include "ops/selection.h"

// What must bind: the kernels of an op by hardware and dtype, written in the op's own test, apart from the
// kernels' own `accepts`. A kernel that refuses what its line names fails the tests; without the table it
// would only not be tested.
namespace temper::op_testing {

inline const std::vector<DType> kWide{DType::kF32, DType::kBF16}, kFloat32{DType::kF32},
    kBFloat16{DType::kBF16}, kAll{DType::kF32, DType::kBF16, DType::kF16};

// A class of hardware and, of GPUs, a range of compute capabilities.
struct Where {
  std::string_view hardware;
  int first_capability = 0, last_capability = INT_MAX;

  bool covers(const HardwareFacts& facts) const {
    return facts.hardware == hardware && facts.compute_capability >= first_capability &&
           facts.compute_capability <= last_capability;
  }
};
// Every processor alike: kernels choose their instructions themselves.
inline constexpr Where kCpu{hardware::kCpu};
inline constexpr Where kGpu{hardware::kGpu, 80}, kHopper{hardware::kGpu, 90, 90},
    kFrom9{hardware::kGpu, 90, 99}, kFrom10{hardware::kGpu, 100, 119};

template <class Op>
struct RequiredKernel {
  std::string_view provider, room;  // the room of src/backends that brings it, or what it needs
  Where where;
  std::vector<DType> dtypes;
  bool (*takes)(const typename Op::Signature&) = nullptr;  // the shapes it must accept; null: all
  bool only_when_written = false;                          // never a default
  int64_t scratch_bytes = 0;                               // of on-chip memory, at least

  bool must_accept(const typename Op::Signature& signature, const HardwareFacts& facts) const;
};

template <class Op>
struct KernelTable {
  typename Op::Signature usual;             // sizes of an ordinary model
  std::vector<DType> dtypes;                // that the op takes
  std::vector<RequiredKernel<Op>> kernels;  // in order of preference
};

// The op's, empty in programs without its test.
template <class Op>
KernelTable<Op>& required_table() {
  static KernelTable<Op> table;
  return table;
}

template <class Signature>
auto& dtype_in(Signature& signature) {
  if constexpr (requires { signature.dtype; })
    return signature.dtype;
  else
    return signature.grads;
}

template <class Op>
bool RequiredKernel<Op>::must_accept(const typename Op::Signature& signature,
                                     const HardwareFacts& facts) const {
  const DType dtype = dtype_in(signature);
  return is_built("backends", room) && where.covers(facts) &&
         std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end() &&
         (takes == nullptr || takes(signature)) &&
         (facts.scratch_bytes == 0 || facts.scratch_bytes >= scratch_bytes);
}

// The provider that an op gets on some hardware, by default or where one is written; else what the error
// says.
template <class Op>
std::string bound_provider(const typename Op::Signature& signature, const HardwareFacts& facts,
                           std::string_view written = "") {
  ops::OpsConfig config;
  for (const std::string& field : ops::hardware_table(facts.hardware).must_be_written)
    config.written[field] = ops::kEager;
  if (!written.empty()) config.written[std::string(Op::kField)] = written;
  try {
    ops::Binder binder(config, facts);
    binder.bind<Op>({signature});
    const ops::BoundOps bound = binder.finish();
    for (const ops::Choice& choice : bound.choices())
      if (choice.op == Op::kName) return choice.provider;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Where the table and the registered kernels of an op differ on some hardware, as sentences: a line that does
// not bind, by default or when it is written; a default that is another; a kernel that accepts what no line
// has.
template <class Op>
std::vector<std::string> differences(const KernelTable<Op>& table, const HardwareFacts& facts) {
  std::vector<std::string> all;
  for (const DType dtype : table.dtypes) {
    typename Op::Signature signature = table.usual;
    dtype_in(signature) = dtype;
    const auto add = [&](std::string_view what, std::string_view expected, std::string_view found) {
      if (expected != found)
        all.push_back(fmt::format("{} {} on {}, {}: expected '{}', found '{}'", Op::kName, to_string(dtype),
                                  facts.name, what, expected, found));
    };
    std::set<std::string, std::less<>> named;
    std::string_view best;
    for (const RequiredKernel<Op>& line : table.kernels) {
      if (!line.must_accept(signature, facts)) continue;
      named.emplace(line.provider);
      if (best.empty() && !line.only_when_written) best = line.provider;
      add("when written", line.provider, bound_provider<Op>(signature, facts, line.provider));
    }
    add("by default", best.empty() ? ops::kEager : best, bound_provider<Op>(signature, facts));
    add("when written", ops::kEager, bound_provider<Op>(signature, facts, ops::kEager));
    for (const auto& [provider, kernel] : ops::kernels<Op>().entries()) {
      if (kernel.compose != nullptr || kernel.hardware != facts.hardware || named.contains(provider))
        continue;
      add("not in the table", "",
          bound_provider<Op>(signature, facts, provider) == provider ? std::string_view(provider) : "");
    }
  }
  return all;
}

// Kernels that no line of the table names.
template <class Op>
std::vector<std::string> without_line() {
  std::vector<std::string> all;
  for (const auto& [provider, kernel] : ops::kernels<Op>().entries()) {
    const auto& lines = required_table<Op>().kernels;
    const bool named = std::any_of(lines.begin(), lines.end(), [&](const RequiredKernel<Op>& line) {
      return line.provider == provider && line.where.hardware == kernel.hardware;
    });
    if (!named && kernel.compose == nullptr) all.push_back(fmt::format("{} {}", Op::kName, provider));
  }
  return all;
}

// The tables of this program, for tests of all ops.
struct RequiredOp {
  std::string_view name;
  std::vector<std::string> (*differences)(const HardwareFacts&);
  std::vector<std::string> (*without_line)();
};
inline std::vector<RequiredOp>& required_ops() {
  static std::vector<RequiredOp> all;
  return all;
}

// The table of an op, in the op's test: an object that adds itself, as tests do.
template <class Op>
struct RequiredKernels {
  RequiredKernels(typename Op::Signature usual, std::vector<DType> dtypes,
                  std::vector<RequiredKernel<Op>> kernels) {
    required_table<Op>() = {std::move(usual), std::move(dtypes), std::move(kernels)};
    constexpr auto here = [](const HardwareFacts& facts) { return differences(required_table<Op>(), facts); };
    required_ops().push_back({Op::kName, here, without_line<Op>});
  }
};

}  // namespace temper::op_testing
