#include "ops/latent_decode/latent_decode.h"

#include <cmath>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<LatentDecode> kLatentDecodeKernels{
    {.heads = 16, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .rank = 512},
    kAll,
    {{"onednn", "onednn", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide, [](const LatentDecode::Signature& s) {
                                           return s.rank + s.rope_dim <= 576;
                                         }}}};

struct Decoding {
  std::vector<int32_t> lengths;
  int64_t capacity, heads = 3, nope = 8, rope = 4, value = 6, rank = 12;
  bool in_8_bits = false;
  int64_t low = 0;  // of an adapter's update
  int64_t page_tokens = 16;
  int64_t sequences() const { return std::ssize(lengths); }
  int64_t width() const { return rank + rope; }
};

constexpr float kUpdateScale = 0.75f;

// By the expanded form: keys and values of every token and head. y, then the cache with the new token in it.
Doubles decoded(const Decoding& s, double scale, const std::vector<Doubles>& inputs) {
  const Doubles &q = inputs[0], &latent = inputs[1];
  Doubles cache = inputs[2], weight = inputs[3], y;
  for (int64_t i = 0; i < std::ssize(weight); ++i)
    for (int64_t j = 0; j < s.low; ++j)
      weight[i] += kUpdateScale * inputs[5][i / s.rank * s.low + j] * inputs[4][j * s.rank + i % s.rank];
  for (int64_t n = 0; n < s.sequences(); ++n) {
    const int64_t length = s.lengths[static_cast<size_t>(n)], first = n * s.capacity * s.width();
    for (int64_t i = 0; i < s.width(); ++i) cache[first + length * s.width() + i] = latent[n * s.width() + i];
    for (int64_t h = 0; h < s.heads; ++h) {
      const double* rows = &weight[h * (s.nope + s.value) * s.rank];
      const auto expanded = [&](int64_t row, int64_t j) {
        double sum = 0;
        for (int64_t i = 0; i < s.rank; ++i) sum += rows[row * s.rank + i] * cache[first + j * s.width() + i];
        return sum;
      };
      const double* query = &q[(n * s.heads + h) * (s.nope + s.rope)];
      Doubles weights;
      double largest = -1e300, sum = 0;
      for (int64_t j = 0; j <= length; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < s.nope; ++i) dot += query[i] * expanded(i, j);
        for (int64_t i = 0; i < s.rope; ++i)
          dot += query[s.nope + i] * cache[first + j * s.width() + s.rank + i];
        weights.push_back(scale * dot);
        largest = std::max(largest, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - largest);
      for (int64_t i = 0; i < s.value; ++i) {
        double out = 0;
        for (int64_t j = 0; j <= length; ++j) out += weights[j] / sum * expanded(s.nope + i, j);
        y.push_back(out);
      }
    }
  }
  y.insert(y.end(), cache.begin(), cache.end());
  return y;
}

// The caches in pages that are anywhere, and NaN where no sequence has tokens.
std::pair<Tensor, PagedSequences> in_pages(const Decoding& s, const Tensor& cache) {
  const int64_t width = (s.capacity + s.page_tokens - 1) / s.page_tokens;
  int64_t count = s.sequences() * width + 3;
  if (count % 7 == 0) ++count;  // all pages differ then
  std::vector<int32_t> starts, held = s.lengths, pages;
  for (int64_t n = 0; n <= s.sequences(); ++n) starts.push_back(static_cast<int32_t>(n));
  for (int64_t i = 0; i < s.sequences() * width; ++i)
    pages.push_back(static_cast<int32_t>((i * 7 + 5) % count));
  for (int64_t n = 0; n < s.sequences(); ++n)  // what lies behind is not read
    for (int64_t i = s.lengths[static_cast<size_t>(n)] / s.page_tokens + 1; i < width; ++i)
      pages[static_cast<size_t>(n * width + i)] = 1 << 30;
  const PagedSequences sequences{ints(starts), ints(held), ints(pages).reshape({s.sequences(), width})};
  const Tensor all = tensor_of(Doubles(static_cast<size_t>(count * s.page_tokens * s.width()), std::nan("")),
                               {count, s.page_tokens, s.width()}, cache.dtype())
                         .on(cache.device());
  for (int64_t n = 0; n < s.sequences(); ++n)
    for (int64_t t = 0; t < s.lengths[static_cast<size_t>(n)]; ++t)
      all.narrow(0, sequences.pages_of(n)[t / s.page_tokens], 1)
          .narrow(1, t % s.page_tokens, 1)
          .copy_from(cache.narrow(0, n, 1).narrow(1, t, 1));
  return {all, sequences};
}

// What pages hold of the sequences' tokens, into the caches as they were.
void read_back(const Decoding& s, const LatentDecode& op, const Tensor& cache) {
  for (int64_t n = 0; n < s.sequences(); ++n)
    for (int64_t t = 0; t <= s.lengths[static_cast<size_t>(n)]; ++t)
      cache.narrow(0, n, 1).narrow(1, t, 1).copy_from(
          op.cache.narrow(0, op.sequences.pages_of(n)[t / s.page_tokens], 1).narrow(1, t % s.page_tokens, 1));
}

void check_decoding(const Decoding& s) {
  const float scale = 0.7f / std::sqrt(static_cast<float>(s.nope + s.rope));
  const Shape q{s.sequences(), s.heads, s.nope + s.rope}, latent{s.sequences(), s.width()},
      cache{s.sequences(), s.capacity, s.width()}, weight{s.heads * (s.nope + s.value), s.rank};
  const Doubles values = normal(4, weight, 1 / std::sqrt(static_cast<double>(s.rank)));
  Case c;
  c.name = fmt::format("q {}, cache {}, weight {}{}, pages of {}", to_string(q), to_string(cache),
                       to_string(weight), s.in_8_bits ? " in 8 bits" : "", s.page_tokens);
  c.inputs = {{"q", q, normal(1, q)},
              {"latent", latent, normal(2, latent)},
              {"cache", cache, normal(3, cache)},
              {"weight", weight, s.in_8_bits ? meaning_in_8_bits(values, weight) : values}};
  if (s.low > 0) {
    const Shape a{s.low, s.rank}, b{weight[0], s.low};
    c.inputs.push_back({"a", a, normal(5, a, 1 / std::sqrt(static_cast<double>(s.rank)))});
    c.inputs.push_back({"b", b, normal(6, b, 0.5)});
  }
  c.inference = true;
  c.terms = std::max(s.capacity, s.rank + s.rope);
  c.reference = [s, scale](const std::vector<Doubles>& inputs) { return decoded(s, scale, inputs); };
  c.run = [s, scale, values, weight](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    Tensor kept = v[2].value.clone();
    LatentDecode op;
    op.q = v[0].value;
    op.latent = v[1].value;
    std::tie(op.cache, op.sequences) = in_pages(s, kept);
    op.lengths = on_device_of(v[0], ints(s.lengths));
    op.scale = scale;
    if (s.low > 0) {
      op.a = v[4].value;
      op.b = v[5].value;
      op.update_scale = kUpdateScale;
    }
    const primitives::Matrix matrix =
        s.in_8_bits ? op_testing::in_8_bits(v[3], values, weight) : primitives::Matrix(v[3]);
    const Tensor y = latent_decode(ops, matrix, op);
    read_back(s, op, kept);
    return Result{tape.constant(y), {kept}};
  };
  check_every_kernel<LatentDecode>(
      c, {.heads = s.heads, .nope_dim = s.nope, .rope_dim = s.rope, .value_dim = s.value, .rank = s.rank});
}

TEST(LatentDecode, LengthsFromEmptyToFull) {
  for (const int32_t length : {0, 1, 31, 63, 64, 65, 128, 299})
    check_decoding({.lengths = {length}, .capacity = 300});
}

TEST(LatentDecode, HeadsAndWidths) {
  for (const int64_t heads : {1, 4, 7, 16, 20, 33})
    check_decoding({.lengths = {20}, .capacity = 21, .heads = heads});
  check_decoding(
      {.lengths = {9}, .capacity = 11, .heads = 2, .nope = 128, .rope = 64, .value = 128, .rank = 512});
  check_decoding({.lengths = {9}, .capacity = 11, .heads = 2, .nope = 5, .rope = 6, .value = 7, .rank = 9});
  check_decoding({.lengths = {9}, .capacity = 11, .heads = 2, .nope = 1, .rope = 2, .value = 1, .rank = 1});
}

TEST(LatentDecode, ManySequences) { check_decoding({.lengths = {5, 0, 129, 200, 64}, .capacity = 201}); }

TEST(LatentDecode, LongCaches) {
  check_decoding({.lengths = {2500, 3}, .capacity = 2501, .heads = 2, .rank = 32});
}

// Of the width that published models have, for which there are kernels of their own.
TEST(LatentDecode, RowsOf576) {
  const auto check = [](const std::vector<int32_t>& lengths, int64_t capacity, int64_t heads, int64_t inner) {
    check_decoding({.lengths = lengths,
                    .capacity = capacity,
                    .heads = heads,
                    .nope = inner,
                    .rope = 64,
                    .value = inner,
                    .rank = 512});
  };
  check({0, 31, 32, 63, 64, 127, 250}, 251, 17, 2);
  check({100}, 101, 16, 3);
  check({8300}, 8301, 1, 1);
}

TEST(LatentDecode, PagesOfAnySize) {
  for (const int64_t page_tokens : {1, 5, 64, 300}) {
    check_decoding({.lengths = {5, 0, 129, 64}, .capacity = 130, .page_tokens = page_tokens});
    check_decoding({.lengths = {31, 32, 200},
                    .capacity = 201,
                    .heads = 17,
                    .nope = 2,
                    .rope = 64,
                    .value = 2,
                    .rank = 512,
                    .page_tokens = page_tokens});
  }
}

TEST(LatentDecode, WeightsIn8Bits) {
  check_decoding({.lengths = {40, 7}, .capacity = 41, .rank = 32, .in_8_bits = true});
}

TEST(LatentDecode, WithAnAdaptersUpdate) {
  for (const int64_t low : {1, 8, 17})
    check_decoding({.lengths = {70, 7}, .capacity = 71, .heads = 10, .low = low});
  check_decoding(
      {.lengths = {9}, .capacity = 11, .nope = 5, .value = 30, .rank = 9, .in_8_bits = true, .low = 3});
}

// Of kernels that say so: a sequence's token has the same bits whatever sequences are next to it.
void check_sequences_are_apart(int64_t rank, int64_t rope) {
  constexpr int64_t kSequences = 64, kCapacity = 90, kHeads = 11;
  const int64_t width = rank + rope;
  const auto brain = [](uint64_t seed, const Shape& shape) {
    return tensor_of(normal(seed, shape), shape, DType::kBF16);
  };
  const Tensor q = brain(1, {kSequences, kHeads, 8 + rope}), latent = brain(2, {kSequences, width}),
               cache = brain(3, {kSequences, kCapacity, width}), weight = brain(4, {kHeads * 14, rank});
  Decoding all_of{.lengths = {}, .capacity = kCapacity, .rope = rope, .rank = rank};
  for (int32_t s = 0; s < kSequences; ++s) all_of.lengths.push_back(s * 29 % kCapacity);
  for (const BoundKernel& kernel : bind_everywhere<LatentDecode>({DType::kBF16, kHeads, 8, rope, 6, rank})) {
    if (!kernel.ops.get<LatentDecode>().batch_invariant) continue;
    const auto decode = [&](int64_t sequences) {
      LatentDecode op;
      op.q = q.narrow(0, 0, sequences).on(kernel.device);
      op.latent = latent.narrow(0, 0, sequences).on(kernel.device);
      const auto [pages, everyone] = in_pages(all_of, cache.on(kernel.device));
      op.cache = pages;
      op.sequences = everyone.part(0, sequences);
      op.lengths = op.sequences.held.on(kernel.device);
      op.scale = 0.3f;
      return values_of(latent_decode(kernel.ops, Var{weight.on(kernel.device), {}}, op));
    };
    const Doubles all = decode(kSequences);
    for (const int64_t sequences : {1, 7}) {
      const Doubles some = decode(sequences);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << kernel.provider;
    }
  }
}

TEST(LatentDecode, ASequenceDoesNotDependOnTheOthers) {
  check_sequences_are_apart(16, 4);
  check_sequences_are_apart(512, 64);
}

TEST(LatentDecode, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LatentDecode>("eager", {});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  struct Call {
    LatentDecode op;
    Tensor weight;
  };
  const auto expect = [&](const std::function<void(Call&)>& change, std::string_view message) {
    Call call{{f32({2, 3, 12}),
               f32({2, 16}),
               f32({4, 5, 16}),
               {ints({0, 1, 2}), ints({3, 8}), ints({0, 1, 3, 2}).reshape({2, 2})},
               ints({3, 8})},
              f32({42, 12})};
    change(call);
    expect_error([&] { latent_decode(ops, Var{call.weight, {}}, call.op); }, message);
  };
  expect([&](Call& c) { c.op.q = f32({2, 36}); }, "[latent_decode] q is [2, 36], needs 3 dimensions");
  expect([&](Call& c) { c.op.latent = f32({2, 15}); }, "[latent_decode] latent is [2, 15], needs [2, 16]");
  expect([&](Call& c) { c.op.cache = f32({4, 80}); }, "[latent_decode] cache is [4, 80], needs 3 dimensions");
  expect([&](Call& c) { c.op.cache = c.op.cache.to(DType::kBF16); },
         "[latent_decode] cache is bfloat16, needs float32");
  expect(
      [&](Call& c) {
        c.weight = f32({42, 16});
      },
      "[latent_decode] weight [42, 16] and a cache of 16 columns do not fit 3 heads of 12 entries");
  expect(
      [&](Call& c) {
        c.weight = f32({24, 12});
      },
      "[latent_decode] weight [24, 12] and a cache of 16 columns do not fit 3 heads of 12 entries");
  expect([&](Call& c) { c.op.a = f32({4, 12}); }, "[latent_decode] b is missing");
  expect(
      [&](Call& c) {
        c.op.a = f32({4, 11});
        c.op.b = f32({42, 4});
      },
      "[latent_decode] a is [4, 11], needs [4, 12]");
  expect(
      [&](Call& c) {
        c.op.a = f32({4, 12});
        c.op.b = f32({42, 3});
      },
      "[latent_decode] b is [42, 3], needs [42, 4]");
  expect([&](Call& c) { c.op.lengths = ints({3}); }, "[latent_decode] lengths is [1], needs [2]");
  expect([&](Call& c) { c.op.lengths = f32({2}); }, "[latent_decode] lengths is float32, needs int32");
  expect([&](Call& c) { c.op.sequences = {}; }, "[latent_decode] held is missing");
}

TEST(LatentDecode, ChecksPagesAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<LatentDecode>("eager", {});
  const auto f32 = [](Shape shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto expect = [&](const std::vector<int32_t>& starts, int32_t held, const std::vector<int32_t>& pages,
                          std::string_view message) {
    const PagedSequences sequences{ints(starts), ints({3, held}), ints(pages).reshape({2, 2})};
    const LatentDecode op{f32({2, 3, 12}), f32({2, 16}), f32({4, 5, 16}), sequences, ints({3, held})};
    expect_error([&] { latent_decode(ops, Var{f32({42, 12}), {}}, op); }, message);
  };
  expect({0, 1, 2}, 8, {0, 1, 4, 2}, "[latent_decode] sequence 1 has page 4, but the pages are 0 to 3");
  expect({0, 1, 3}, 8, {0, 1, 3, 2}, "[latent_decode] starts go from 0 to 3, need 0 to 2");
  expect({0, 1, 2}, 10, {0, 1, 3, 2}, "[latent_decode] sequence 1 has 11 tokens, no room in 2 pages of 5");
}

}  // namespace
}  // namespace temper::ops
