// Kernels of paged attention that do not depend on the batch: the bits are the same for any cut of a prompt,
// any neighbours and any number of sequences.
#include <numeric>

#include "ops/attention/paged_attention.h"
#include "primitives/primitives.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

struct CutCase {
  int64_t tokens, heads, kv_heads, head_dim, window = 0;
};

// The same bits for any cut of a prompt, any size of pages and any neighbours, and those of one document of
// the attention that trains.
void check_cuts(const CutCase& c, const HardwareFacts& machine) {
  const bool cpu = machine.device.type == DeviceType::kCpu, any_window = c.window > 0;
  const DType dtype = cpu ? DType::kF32 : DType::kBF16;
  const PagedAttention::Signature signature{dtype, c.heads, c.kv_heads, c.head_dim, any_window};
  const auto filled = [&](uint64_t seed, int64_t heads) {
    const Shape shape{c.tokens, heads, c.head_dim};
    return tensor_of(normal(seed, shape), shape, dtype).on(machine.device);
  };
  const Tensor all_q = filled(1, c.heads), all_k = filled(2, c.kv_heads), all_v = filled(3, c.kv_heads);
  for (const BoundKernel& kernel : bind_every_kernel<PagedAttention>(signature, machine)) {
    if (!kernel.ops.get<PagedAttention>().batch_invariant) continue;
    const BoundOps training = bind_kernel<Attention>(
        cpu ? "onednn" : "cuda_invariant", {dtype, c.heads, c.kv_heads, c.head_dim, any_window}, machine);
    Tape tape(false);
    Attention whole;
    whole.cu_seqlens_q = whole.cu_seqlens_k = ints({0, static_cast<int32_t>(c.tokens)});
    whole.scale = 0.2f;
    whole.window = c.window;
    const Doubles expected = values_of(
        attention(tape, training, tape.constant(all_q), tape.constant(all_k), tape.constant(all_v), whole)
            .value);
    for (const int64_t page_tokens : {16, 100, 256})
      for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{333}, c.tokens}) {
        const int64_t width = (c.tokens + page_tokens - 1) / page_tokens;
        const Shape pages{2 * width, page_tokens, c.kv_heads, c.head_dim};
        std::vector<int32_t> tables(static_cast<size_t>(2 * width));
        std::iota(tables.rbegin(), tables.rend(), 0);
        PagedAttention op;
        op.keys = Tensor::zeros(pages, dtype, MemoryTag::kKvCache, machine.device);
        op.values = Tensor::zeros(pages, dtype, MemoryTag::kKvCache, machine.device);
        op.scale = 0.2f;
        op.window = c.window;
        Doubles found;
        for (int64_t first = 0; first < c.tokens; first += chunk) {
          const int64_t count = std::min(chunk, c.tokens - first);
          // Next to a sequence that begins again each time.
          const auto with_neighbour = [&](const Tensor& all) {
            Tape own(false);
            return primitives::concat_first(
                       own, {own.constant(all.narrow(0, 0, 3)), own.constant(all.narrow(0, first, count))})
                .value;
          };
          op.q = with_neighbour(all_q);
          op.k = with_neighbour(all_k);
          op.v = with_neighbour(all_v);
          op.sequences = {ints({0, 3, static_cast<int32_t>(3 + count)}),
                          ints({0, static_cast<int32_t>(first)}), ints(tables).reshape({2, width})};
          const Tensor y = paged_attention(kernel.ops, op).narrow(0, 3, count);
          for (const double value : values_of(y)) found.push_back(value);
        }
        int64_t different = 0;
        for (size_t i = 0; i < found.size(); ++i) different += found[i] != expected[i];
        EXPECT_EQ(different, 0) << kernel.provider << ", " << c.tokens << " tokens, heads of " << c.head_dim
                                << ", pages of " << page_tokens << ", " << chunk << " at once, window "
                                << c.window;
      }
  }
}

TEST(PagedInvariance, AnyCutHasTheSameBits) {
  for (const HardwareFacts& machine : machines())
    for (const int64_t window : {0, 37, 300})
      check_cuts({.tokens = 600, .heads = 4, .kv_heads = 2, .head_dim = 24, .window = window}, machine);
}

// Several parts of sums, and all widths of heads and ways to share them that kernels tell apart.
TEST(PagedInvariance, AnyCutHasTheSameBitsOnGpus) {
  if (machines().size() < 2) GTEST_SKIP() << "no GPU";
  for (const CutCase& c :
       {CutCase{1400, 8, 2, 128}, {1100, 20, 2, 64}, {700, 2, 2, 256}, {1700, 8, 1, 128, 640}})
    check_cuts(c, machines()[1]);
}

// Kernels may divide the work of few sequences otherwise than that of many: with the same bits.
TEST(PagedInvariance, ManySequencesHaveTheBitsOfFew) {
  constexpr int64_t kMany = 120, kHeld = 700, kPageTokens = 32, kPages = kHeld / kPageTokens + 1;
  for (const HardwareFacts& machine : machines())
    for (const int64_t dim : {64, 128, 256}) {
      const DType dtype = machine.device.type == DeviceType::kCpu ? DType::kF32 : DType::kBF16;
      const auto filled = [&](uint64_t seed, const Shape& shape) {
        return tensor_of(normal(seed, shape), shape, dtype).on(machine.device);
      };
      const Tensor q = filled(1, {kMany, 16, dim}), k = filled(2, {1, 8, dim}), v = filled(3, {1, 8, dim}),
                   keys = filled(4, {kPages, kPageTokens, 8, dim}),
                   values = filled(5, {kPages, kPageTokens, 8, dim});
      for (const BoundKernel& kernel : bind_every_kernel<PagedAttention>({dtype, 16, 8, dim}, machine)) {
        if (!kernel.ops.get<PagedAttention>().batch_invariant) continue;
        // All sequences have the same pages and new token; their queries differ.
        const auto run = [&](int64_t first, int64_t count) {
          std::vector<int32_t> starts, held, tables;
          for (int64_t n = 0; n < count; ++n) {
            held.push_back(kHeld);
            for (int32_t page = 0; page < kPages; ++page) tables.push_back(page);
          }
          for (int32_t n = 0; n <= count; ++n) starts.push_back(n);
          Tape tape(false);
          const auto repeated = [&](const Tensor& row) {
            return primitives::concat_first(tape,
                                            std::vector<Var>(static_cast<size_t>(count), tape.constant(row)))
                .value;
          };
          PagedAttention op{q.narrow(0, first, count),
                            repeated(k),
                            repeated(v),
                            keys,
                            values,
                            {ints(starts), ints(held), ints(tables).reshape({count, kPages})}};
          op.scale = 0.2f;
          return values_of(paged_attention(kernel.ops, op));
        };
        const Doubles all = run(0, kMany);
        for (const int64_t n : {int64_t{0}, int64_t{61}, kMany - 1}) {
          const auto from = all.begin() + n * 16 * dim;
          EXPECT_TRUE(run(n, 1) == Doubles(from, from + 16 * dim)) << kernel.provider << ", heads of " << dim;
        }
      }
    }
}

}  // namespace
}  // namespace temper::ops
