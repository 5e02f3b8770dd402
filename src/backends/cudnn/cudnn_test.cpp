// What needs no GPU: what is refused, and how documents are cut and rounded. The rest is ops/attention's
// test.
#include <gtest/gtest.h>

#include "backends/cudnn/documents.h"
#include "backends/cudnn/library.h"
#include "ops/attention/attention.h"

namespace temper::backends::cudnn {
namespace {

using ops::Attention;

struct Question {
  Attention::Signature signature{
      .dtype = DType::kBF16, .heads = 4, .kv_heads = 2, .head_dim = 128, .window = false};
  int capability = 90;
};

std::string refusal(const std::function<void(Question&)>& change) {
  Question question;
  change(question);
  HardwareFacts facts;  // of a GPU that is not here
  facts.hardware = hardware::kGpu;
  facts.compute_capability = question.capability;
  return ops::kernels<Attention>().find("cudnn")->accepts(question.signature, facts).value_or("");
}

TEST(CudnnStatus, IsSortedByItsCause) {
  using device::Failure;
  for (const int status : {4003, 4004}) EXPECT_EQ(failure_of(status), Failure::kOutOfMemory) << status;
  for (const int status : {1001, 1002, 1005, 1008, 3005, 3006, 3007, 3008, 3009})
    EXPECT_EQ(failure_of(status), Failure::kUnusable) << status;
  for (const int status : {1003, 1006, 2000, 2003, 2007, 3000, 3002, 3012})
    EXPECT_EQ(failure_of(status), Failure::kDefect) << status;
  for (const int status : {4000, 4005, 5000, 5001, 5003})
    EXPECT_EQ(failure_of(status), Failure::kUnexplained) << status;
}

TEST(CudnnAttention, Refuses) {
  EXPECT_EQ(refusal([](Question&) {}), "");
  EXPECT_EQ(refusal([](Question& q) { q.signature.window = true; }), "");
  EXPECT_EQ(refusal([](Question& q) { q.signature.dtype = DType::kF16; }), "dtype must be bfloat16");
  EXPECT_EQ(refusal([](Question& q) { q.signature.causal = false; }),
            "is causal: queries do not see the keys behind them");
  EXPECT_EQ(refusal([](Question& q) { q.signature.head_dim = 256; }), "");
  EXPECT_EQ(refusal([](Question& q) { q.signature.head_dim = 264; }),
            "head_dim must be a multiple of 8 up to 256, is 264");
  const auto wide_on_later = [](Question& q) {
    q.signature.head_dim = 256;
    q.capability = 100;
  };
  EXPECT_EQ(refusal(wide_on_later), "head_dim must be a multiple of 8 up to 128, is 256");
  EXPECT_EQ(refusal([](Question& q) { q.capability = 100; }), "");
  EXPECT_EQ(refusal([](Question& q) { q.signature.dtype = DType::kF32; }), "dtype must be bfloat16");
  EXPECT_EQ(refusal([](Question& q) { q.capability = 80; }),
            "packed documents need compute capability 9.0 or later, this is 8.0");
  EXPECT_EQ(refusal([](Question& q) { q.capability = 120; }),
            "backward has no fixed order of sums at compute capability 12.0");
  EXPECT_EQ(refusal([](Question& q) { q.signature.head_dim = 12; }),
            "head_dim must be a multiple of 8 up to 256, is 12");
  const auto values = [](int64_t head_dim, int64_t value_dim, int capability = 90) {
    return refusal([=](Question& q) {
      q.signature.head_dim = head_dim;
      q.signature.value_dim = value_dim;
      q.capability = capability;
    });
  };
  EXPECT_EQ(values(192, 128), "");
  EXPECT_EQ(values(128, 128, 100), "");
  EXPECT_EQ(values(128, 64),
            "values must be as wide as keys, or 128 for keys of 192 at compute capability 9.x, are 64 for "
            "128 at 9.0");
  EXPECT_EQ(values(128, 64, 100),
            "values must be as wide as keys, or 128 for keys of 192 at compute capability 9.x, are 64 for "
            "128 at 10.0");
  EXPECT_EQ(refusal([](Question& q) { q.signature.kv_heads = 3; }),
            "4 query heads are not a multiple of 3 key heads");
}

Attention op_of(const std::vector<std::pair<int32_t, int32_t>>& documents) {
  std::vector<int32_t> q{0}, k{0};
  for (const auto& [queries, keys] : documents) {
    q.push_back(q.back() + queries);
    k.push_back(k.back() + keys);
  }
  Attention op;
  op.q = Tensor::empty({q.back(), 1, 8}, DType::kBF16);
  op.k = op.v = Tensor::empty({k.back(), 1, 8}, DType::kBF16);
  op.cu_seqlens_q = Tensor::from(q);
  op.cu_seqlens_k = Tensor::from(k);
  return op;
}

int64_t common(const std::vector<std::pair<int32_t, int32_t>>& documents) {
  const Attention op = op_of(documents);
  return common_length(packed_documents(op), op);
}

TEST(CudnnDocuments, ThoseWithoutQueriesAreLeftOut) {
  const auto documents = packed_documents(op_of({{0, 4}, {2, 5}, {0, 0}, {3, 3}}));
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].query, 0);
  EXPECT_EQ(documents[0].key, 4);
  EXPECT_EQ(documents[0].keys, 5);
  EXPECT_EQ(documents[1].query, 2);
  EXPECT_EQ(documents[1].queries, 3);
  EXPECT_EQ(documents[1].key, 9);
}

TEST(CudnnDocuments, OneLengthMakesAPlainBatch) {
  EXPECT_EQ(common({{128, 128}}), 128);
  EXPECT_EQ(common({{256, 256}, {256, 256}, {0, 0}}), 256);
  EXPECT_EQ(common({}), 0);
  EXPECT_EQ(common({{0, 0}}), 0);
  EXPECT_EQ(common({{100, 100}}), 0);
  EXPECT_EQ(common({{128, 128}, {256, 256}}), 0);
  EXPECT_EQ(common({{128, 256}}), 0);
  EXPECT_EQ(common({{128, 128}, {0, 3}}), 0);
  EXPECT_EQ(common({{0, 3}, {128, 128}}), 0);
}

TEST(CudnnDocuments, LengthsAndCountsAreRoundedUp) {
  const std::vector<std::pair<int64_t, int64_t>> lengths{
      {0, 128},     {1, 128},     {128, 128},    {129, 256},     {256, 256},
      {257, 512},   {2048, 2048}, {2049, 2560},  {2561, 3072},   {4096, 4096},
      {4097, 5120}, {8192, 8192}, {8193, 10240}, {32768, 32768}, {32769, 40960}};
  for (const auto& [length, rounded] : lengths) EXPECT_EQ(rounded_length(length), rounded) << length;
  EXPECT_EQ(rounded_count(0), 1);
  EXPECT_EQ(rounded_count(1), 1);
  EXPECT_EQ(rounded_count(5), 8);
  EXPECT_EQ(rounded_count(64), 64);
}

TEST(CudnnDocuments, PartsFitTheirBudget) {
  // A document of up to 128 tokens takes 2 · 128 · 128 · 2 = 64 KiB with two heads.
  const int64_t each = 64 << 10;
  const auto documents =
      packed_documents(op_of({{10, 10}, {128, 128}, {1, 1}, {7, 90}, {50, 50}, {300, 300}}));
  using Parts = std::vector<Part>;
  EXPECT_EQ(cut(documents, 2, 4 * each), (Parts{{0, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(cut(documents, 2, each), (Parts{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(cut(documents, 2, 128 * each), (Parts{{0, 6}}));
  EXPECT_EQ(cut({}, 2, each), Parts{});
  EXPECT_EQ(cut_evenly(5, 128, 2, 2 * each), (Parts{{0, 1}, {1, 3}, {3, 5}}));
  EXPECT_EQ(cut_evenly(4, 128, 2, 4 * each), (Parts{{0, 4}}));
  EXPECT_EQ(cut_evenly(2, 128, 2, 1), (Parts{{0, 1}, {1, 2}}));
}

TEST(CudnnDocuments, ExtentsAreOfThePart) {
  const auto documents = packed_documents(op_of({{10, 10}, {1, 300}, {500, 500}}));
  EXPECT_EQ(extent_of(documents, {0, 1}).queries, 128);
  EXPECT_TRUE(extent_of(documents, {0, 1}).square);
  EXPECT_EQ(extent_of(documents, {0, 2}).keys, 512);
  EXPECT_FALSE(extent_of(documents, {0, 2}).square);
  EXPECT_EQ(extent_of(documents, {2, 3}).queries, 512);
  EXPECT_TRUE(extent_of(documents, {2, 3}).square);
}

}  // namespace
}  // namespace temper::backends::cudnn
