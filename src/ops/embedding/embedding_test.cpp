#include "ops/embedding/embedding.h"

#include "base/random.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;

const RequiredKernels<Embedding> kEmbeddingKernels{
    {.hidden = 1024}, kAll, {{"simd", "simd", kCpu, kWide}, {"cuda", "cuda", kGpu, kWide}}};

void check(int64_t vocab, int64_t hidden, const std::vector<int32_t>& ids, Role role = Role::kParameter) {
  Case c;
  c.name = fmt::format("{} ids from [{}, {}]", ids.size(), vocab, hidden);
  c.inputs = {{"table", {vocab, hidden}, normal(1, {vocab, hidden}), role}};
  c.reference = [ids, hidden](const std::vector<Doubles>& inputs) {
    Doubles y;
    for (const int32_t id : ids)
      for (int64_t i = 0; i < hidden; ++i) y.push_back(inputs[0][id * hidden + i]);
    return y;
  };
  c.run = [ids](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
    return Result{embedding(tape, ops, on_device_of(v[0], ints(ids)), v[0]), {}};
  };
  c.terms = static_cast<int64_t>(ids.size());
  if (vocab * hidden > 20'000) c.samples = 4;
  check_every_kernel<Embedding>(c, {.hidden = hidden});
}

std::vector<int32_t> random_ids(int64_t count, int64_t vocab) {
  const Random random(5, RandomPurpose::kData);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), static_cast<uint64_t>(i))));
  return ids;
}

TEST(Embedding, EveryKernelAgrees) {
  check(1, 1, {0});
  check(11, 7, {3});
  check(11, 7, {10, 0, 3, 3, 3, 0, 10});
  check(11, 7, {10, 0, 3, 3, 3, 0, 10}, Role::kVariable);
  check(11, 64, std::vector<int32_t>(40, 5));
  check(320, 100, random_ids(130, 320));
  check(1000, 65, random_ids(300, 20));
  check(100, 65, random_ids(1500, 100));
  check(5003, 8, random_ids(64, 5003));
}

TEST(Embedding, NoTokens) { check(11, 8, {}); }

TEST(Embedding, CopiesBits) {
  const Tensor table = tensor_of(normal(1, {11, 9}), {11, 9}, DType::kBF16);
  for (const BoundKernel& kernel : bind_everywhere<Embedding>({DType::kBF16, 9})) {
    Tape tape;
    const Tensor ids = ints({7, 2}).on(kernel.device);
    const Tensor y = embedding(tape, kernel.ops, ids, tape.constant(table.on(kernel.device))).value;
    EXPECT_EQ(values_of(y.narrow(0, 0, 1)), values_of(table.narrow(0, 7, 1))) << kernel.provider;
    EXPECT_EQ(values_of(y.narrow(0, 1, 1)), values_of(table.narrow(0, 2, 1))) << kernel.provider;
  }
}

TEST(Embedding, ChecksAtTheFrontDoor) {
  const BoundOps ops = bind_kernel<Embedding>("eager", {});
  Tape tape;
  const auto call = [&](const Tensor& ids, const Tensor& table) {
    return [&tape, &ops, ids, table] { embedding(tape, ops, ids, tape.constant(table)); };
  };
  const Tensor ids = ints({0, 1}), table = Tensor::zeros({5, 4}, DType::kF32);
  expect_error(call({}, table), "[embedding] ids is missing");
  expect_error(call(ids.reshape({1, 2}), table), "[embedding] ids is [1, 2], needs 1 dimensions");
  expect_error(call(Tensor::zeros({2}, DType::kI64), table), "[embedding] ids is int64, needs int32");
  expect_error(call(ids, {}), "[embedding] table is missing");
  expect_error(call(ids, table.reshape({20})), "[embedding] table is [20], needs 2 dimensions");
  expect_error(call(ids, Tensor::zeros({5, 4}, DType::kU8)),
               "[embedding] table is uint8, needs float32, bfloat16 or float16");
  expect_error(call(ids, table.narrow(1, 0, 3)),
               "[embedding] table [5, 3] has strides [4, 1], needs them without gaps");
  expect_error(call(ints({0, 5}), table), "[embedding] token id 5 is outside the vocabulary [0, 5)");
  expect_error(call(ints({-1}), table), "[embedding] token id -1 is outside the vocabulary [0, 5)");
}

}  // namespace
}  // namespace temper::ops
