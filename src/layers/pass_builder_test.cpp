#include "layers/pass_builder.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

std::vector<int32_t> values_in(const Tensor& tensor) {
  const auto values = tensor.values<int32_t>();
  return {values.begin(), values.end()};
}

// Passes of a model without layers, with one rotary table.
class Passes : public testing::Test {
 protected:
  Passes() {
    config_.vocab_size = 50;
    config_.max_positions = 64;
    rope_.add({}, 8);
    scope_.emplace(inputs_, false);
  }
  PassBuilder builder(size_t routers = 0) { return {config_, ranks_, context_, rope_, routers, {}}; }

  DecoderConfig config_;
  ModelRanks ranks_;
  ContextParts context_;
  RopeTableSet rope_{64, {}};
  HostInputs inputs_{Device{}};
  std::optional<HostInputs::Scope> scope_;
};

TEST_F(Passes, DocumentsSeeTheirOwnTokensAlone) {
  const std::vector<int32_t> ids{4, 5, 6, 7, 8}, lengths{2, 3};
  const Pass pass = builder().of(make_input(ids, lengths), Decoder::Options{});
  EXPECT_EQ(values_in(pass.cu_seqlens_q), (std::vector<int32_t>{0, 2, 5}));
  EXPECT_EQ(values_in(pass.cu_seqlens_k), (std::vector<int32_t>{0, 2, 5}));
  EXPECT_EQ(values_in(places_of(pass)), (std::vector<int32_t>{0, 1, 0, 1, 2}));
  EXPECT_FALSE(pass.seen);
  EXPECT_FALSE(pass.counted.defined());
}

TEST_F(Passes, ADocumentThatContinuesAnotherSeesItsTokensFirst) {
  const std::vector<int32_t> ids{4, 5, 6, 7, 8}, lengths{2, 2, 1};
  const Pass pass = builder().of(make_input(ids, lengths, {-1, 0, 0}), Decoder::Options{});
  ASSERT_TRUE(pass.seen);
  EXPECT_EQ(values_in(pass.seen->ids), (std::vector<int32_t>{0, 1, 0, 1, 2, 3, 0, 1, 4}));
  EXPECT_EQ(values_in(pass.cu_seqlens_k), (std::vector<int32_t>{0, 2, 6, 9}));
  EXPECT_EQ(values_in(pass.continued), (std::vector<int32_t>{-1, 0, 0}));
}

TEST_F(Passes, RotaryTablesGrowToTheLongestDocument) {
  const std::vector<int32_t> ids(40, 1), lengths{40};
  EXPECT_GE(builder().of(make_input(ids, lengths), Decoder::Options{}).rope.at(0).cos.dim(0), 40);
}

TEST_F(Passes, RoutersAreRecordedByPlace) {
  const std::vector<int32_t> ids{4, 5}, lengths{2};
  Decoder::Options options;
  options.routers = std::make_shared<RouterTrace>();
  EXPECT_EQ(builder(3).of(make_input(ids, lengths), options).routers->routers.size(), 3u);
}

TEST_F(Passes, AdaptersOfOtherRanksComeBeforeThoseOfTheRows) {
  const Adapter* const none = nullptr;
  const std::vector<const Adapter*> all{none, none};
  const std::vector<int32_t> ids{4, 5}, lengths{2};
  Decoder::Options options;
  options.adapters = {{none, 2}};
  EXPECT_EQ(builder().of(make_input(ids, lengths), options).adapters.size(), 1u);
  options.all_adapters = all;
  EXPECT_EQ(builder().of(make_input(ids, lengths), options).adapters.size(), 2u);
}

TEST(TokenIds, OutsideTheVocabularyAreRefused) {
  check_ids(std::vector<int32_t>{0, 49}, 50);
  for (const int32_t id : {-1, 50}) EXPECT_THROW(check_ids(std::vector<int32_t>{id}, 50), Error) << id;
}

}  // namespace
}  // namespace temper::layers
