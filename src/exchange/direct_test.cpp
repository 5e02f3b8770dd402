// Weights that are written over those in use: passes wait meanwhile, and none uses half of them.
#include <atomic>

#include "base/clock.h"
#include "device/memory.h"
#include "exchange/exchange_fixture.h"

namespace temper::exchange {
namespace {

class Direct : public Exchange {
 protected:
  void begin_direct(const char* type = "qwen3", DType dtype = DType::kF32, double deadline_seconds = 20) {
    begin(type, dtype, deadline_seconds, Loading::kDirect);
  }
};

TEST_F(Direct, BothKindsOfNamesGiveTheBitsOfTheFolder) {
  for (const char* type : kTypes)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const Names names : {Names::kPacked, Names::kCheckpoint})
        for (const int64_t chunk_bytes : {int64_t{4096}, int64_t{64} << 20}) {
          begin_direct(type, dtype);
          const uint64_t before = store().version();
          EXPECT_TRUE(sync(3, {.names = names, .chunk_bytes = chunk_bytes}).published);
          EXPECT_NE(store().version(), before);
          EXPECT_EQ(differences(expected(), hashes_of(store())), std::vector<std::string>())
              << type << (names == Names::kPacked ? ", packed" : ", checkpoint");
          EXPECT_FALSE(receiver_->holds());
        }
}

// From begin to finish no pass may be made.
TEST_F(Direct, PassesAreHeldUntilAllHaveCome) {
  begin_direct();
  std::promise<void> looked;
  std::atomic<bool> sent = false, finished = false;
  auto sending = std::async(std::launch::async, [&] {
    Sender sender(socket(), table(), {.chunk_bytes = 4096});
    sender.begin(1);
    send_folder(sender, *folder_, table(), Names::kPacked);
    sent = true;
    looked.get_future().wait();
    finished = true;
    sender.finish();
  });
  while (!sent) EXPECT_FALSE(receiver_->take_new([&] { return sent.load(); }));
  EXPECT_TRUE(receiver_->holds());
  EXPECT_FALSE(finished);
  EXPECT_FALSE(old_ == hashes_of(store()));  // some of them are new
  looked.set_value();
  EXPECT_TRUE(receiver_->take_new());
  EXPECT_TRUE(finished);
  EXPECT_FALSE(receiver_->holds());
  sending.get();
  EXPECT_EQ(expected(), hashes_of(store()));
}

TEST_F(Direct, AfterAnErrorInTheMiddleOnlyWholeWeightsServe) {
  for (const int64_t chunks : {2, 5, 17}) {
    begin_direct();
    const uint64_t version = store().version();
    during_passes([&] { EXPECT_TRUE(send_pieces(chunks, Names::kPacked)); });
    // The receiver may hear a moment later that the sender is gone.
    receiver_->take_new([until = seconds_now() + 0.3] { return seconds_now() > until; });
    EXPECT_TRUE(receiver_->holds()) << chunks;
    EXPECT_EQ(store().version(), version);
    EXPECT_TRUE(taken_.empty());
    EXPECT_TRUE(sync(2, {}).published);
    EXPECT_FALSE(receiver_->holds());
    EXPECT_EQ(expected(), hashes_of(store()));
    taken_.clear();
  }
}

TEST_F(Direct, WhatEndsBeforeTheFirstChunkBreaksNothing) {
  begin_direct();
  during_passes([&] { EXPECT_TRUE(send_pieces(0, Names::kPacked)); });
  receiver_->take_new([until = seconds_now() + 0.3] { return seconds_now() > until; });
  EXPECT_FALSE(receiver_->holds());
  EXPECT_EQ(old_, hashes_of(store()));
}

TEST_F(Direct, BrokenWeightsEndTheProgramThatWaitsInVain) {
  begin_direct("qwen3", DType::kF32, 0.5);
  during_passes([&] { EXPECT_TRUE(send_pieces(3, Names::kPacked)); });
  const double before = seconds_now();
  std::string error;
  try {
    while (seconds_now() < before + 20) receiver_->take_new();
  } catch (const Error& thrown) {
    error = thrown.what();
    EXPECT_EQ(thrown.kind(), ErrorKind::kResources);
  }
  EXPECT_NE(error.find("the weights are partly old and partly new, and no others came within 0.5 s"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("died before it had finished"), std::string::npos) << error;
}

// Missing tensors are found only at the end, when the others have been written.
TEST_F(Direct, WeightsThatAreNotWholeAreBroken) {
  begin_direct();
  const std::string error = during_passes([&] {
    Sender sender(socket(), table(), {});
    sender.begin(1);
    sender.add("norm.weight", Tensor::zeros({32}, DType::kF32));
    sender.finish();
  });
  EXPECT_NE(error.find("tensors did not come"), std::string::npos) << error;
  EXPECT_TRUE(receiver_->holds());
}

// What a receiver takes in addition to the weights: nothing where dtypes are equal, and never more than a
// chunk. A staged copy is as large as all of them.
TEST_F(Direct, ExtraMemoryIsAtMostAChunk) {
  constexpr int64_t kChunk = 1 << 14;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Names names : {Names::kPacked, Names::kCheckpoint})
      for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
        begin("qwen3_moe", dtype, 20, loading);
        const auto sent = models::load_model(path(), {});
        const auto send = [&] {
          Sender sender(socket(), table(), {.names = names, .chunk_bytes = kChunk});
          sender.begin(1);
          for (const WeightSpec& spec : table().specs()) {
            if (names == Names::kPacked) sender.add(spec.name, sent->decoder.parameters().value(spec.name));
            if (names == Names::kCheckpoint)
              for (const WeightSource& source : spec.sources)
                sender.add(source.name, folder_->tensor(source.name));
          }
          sender.finish();
        };
        int64_t weights = 0;
        for (size_t i = 0; i < store().size(); ++i) weights += store()[i].value.bytes();
        ASSERT_GT(weights, 3 * kChunk);
        pool().reset_peak();
        const int64_t before = pool().peak_live();
        EXPECT_EQ(during_passes(send), "");
        const int64_t extra = pool().peak_live() - before;
        if (loading == Loading::kDirect) {
          EXPECT_LE(extra, kChunk) << to_string(dtype);
        } else {
          EXPECT_GE(extra, weights);
        }
        taken_.clear();
      }
}

TEST_F(Direct, FiveHundredSyncsTakeNoMemory) {
  begin_direct();
  const auto live = [] {
    int64_t all = 0;
    for (const RegionUsage& each : pool().usage()) all += each.live;
    return all;
  };
  int64_t before = 0;
  for (int i = 0; i < 500; ++i) {
    EXPECT_TRUE(sync(i, {.names = i % 2 == 0 ? Names::kPacked : Names::kCheckpoint, .chunk_bytes = 1 << 16})
                    .published);
    if (i == 4) before = live();
  }
  EXPECT_EQ(live(), before);
}

}  // namespace
}  // namespace temper::exchange
