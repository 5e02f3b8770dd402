// Syncs that end half way, and the next one.
#include "exchange/raw_sender.h"

namespace temper::exchange {
namespace {

class Deaths : public Exchange {
 protected:
  std::unique_ptr<RawSender> rank(int number, int of = 2) {
    return std::make_unique<RawSender>(socket(), table(), number, of);
  }
};

constexpr int kSteps = 4;  // of a rank, which the last one of a sync does not make: it is not whole

void make_step(RawSender& sender, int step, int64_t version, int rank) {
  if (step == 0) sender.begin(version);
  if (step == 1 || step == 2) sender.update_norm(16 * rank + 8 * (step - 1), 8);
  if (step == 3) sender.finish();
}

// One of two ranks dies, or hangs, between any two messages.
TEST_F(Deaths, TheNextSyncIsTakenAtOnce) {
  const std::vector<std::vector<int>> orders{{0, 0, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0}};
  int64_t version = 0;
  for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
    begin("qwen3", DType::kF32, 20, loading);
    for (const std::vector<int>& order : orders)
      for (size_t messages = 0; messages <= order.size(); ++messages)
        for (const int dead : {0, 1})
          for (const bool closes : {true, false}) {
            std::unique_ptr<RawSender> ranks[2];
            ++version;
            EXPECT_EQ(during_passes([&] {
                        int steps[2] = {};
                        for (int i : {0, 1}) ranks[i] = rank(i);
                        for (size_t i = 0; i < messages; ++i)
                          make_step(*ranks[order[i]], steps[order[i]]++, version, order[i]);
                        if (closes) ranks[dead].reset();
                      }),
                      "");
            expect_next_sync(++version);
            if (HasFailure()) FAIL() << messages << " messages, rank " << dead << ", closed: " << closes;
          }
  }
}

// Ranks of a sync that ended get to know why, and the same of a rank whose process was started again.
TEST_F(Deaths, WhatTookTheirPlaceIsSaidToTheOthers) {
  for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
    begin("qwen3", DType::kF32, 20, loading);
    EXPECT_EQ(during_passes([&] {
                const auto first = rank(0), again = rank(0), other = rank(1), third = rank(2, 3);
                first->begin(4);
                first->update_norm(0, 8);
                again->begin(4);
                expect_has(failure_of([&] { first->update_norm(8, 8); }),
                           "version 4 ended before all of it had come: it began again");
                again->update_norm(0, 16);
                again->finish();
                other->begin(4);
                expect_has(failure_of([&] { rank(1)->begin(3); }),
                           "version 3 of 2 ranks began, but version 4 waits for 1 of 2 ranks");
                third->begin(4);  // of a trainer of other ranks
                expect_has(failure_of([&] { other->finish(); }), "had come: it began again");
                rank(0)->begin(5);
                expect_has(failure_of([&] { third->finish(); }),
                           "version 4 ended before all of it had come: version 5 began");
              }),
              "");
    expect_next_sync(6);
  }
}

// A rank that has sent its part, and one that begins while the first one's process is started again.
TEST_F(Deaths, ARankThatFinishedMayBeginAgain) {
  begin();
  EXPECT_EQ(during_passes([&] {
              const auto first = rank(0);
              first->begin(4);
              first->update_norm(0, 16);
              first->finish();
              first->begin(4);  // on the same connection
              first->update_norm(0, 32);
              first->finish();
            }),
            "");
  EXPECT_TRUE(taken_.empty());
  expect_next_sync(5);
}

// An older sync does not end a newer one, which is taken when all of it has come.
TEST_F(Deaths, AnOlderVersionIsRefusedWhileANewerOneWaits) {
  begin();
  EXPECT_EQ(during_passes([&] {
              const auto part = [&](int64_t version, int rank, bool whole) {
                Sender sender(socket(), table(), {.rank = rank, .ranks = 2});
                sender.begin(version);
                if (whole) send_folder(sender, *folder_, table(), Names::kPacked);
                return sender.finish().published;
              };
              EXPECT_FALSE(part(4, 1, true));
              expect_has(failure_of([&] { part(3, 0, true); }), "version 4 waits for 1 of 2 ranks");
              expect_has(failure_of([&] { part(3, 1, true); }), "version 4 waits for 1 of 2 ranks");
              EXPECT_TRUE(part(4, 0, false));
            }),
            "");
  ASSERT_EQ(taken_.size(), 1u);
  EXPECT_EQ(taken_[0].version, 4);
  EXPECT_EQ(expected(), hashes_of(store()));
}

// The deadline is the sync's, whoever connects meanwhile: an older version is refused before it.
TEST_F(Deaths, ARankThatDoesNotComeEndsTheSync) {
  for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
    begin("qwen3", DType::kF32, 0.4, loading);
    double begun = 0, ended = 0;
    EXPECT_EQ(during_passes([&] {
                rank(0)->begin(9);  // and dies, which ends it
                const auto first = rank(0), other = rank(1);
                first->begin(4);
                first->finish();
                begun = seconds_now();
                while (ended == 0 && seconds_now() < begun + 10) {
                  const std::string error = failure_of([&] { rank(1)->begin(3); });
                  if (error.empty()) ended = seconds_now();
                  if (!error.empty()) expect_has(error, "version 4 waits for 1 of 2 ranks");
                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
                }
              }),
              "");
    EXPECT_GT(ended - begun, 0.3);
    EXPECT_LT(ended - begun, 3);
    receiver_->take_new([until = seconds_now() + 0.2] { return seconds_now() > until; });
    EXPECT_FALSE(receiver_->holds());  // nothing was written
    expect_next_sync(10);
  }
}

// Passes wait for a rank no longer than for its messages; broken weights end the program.
TEST_F(Deaths, PassesAreNotHeldByARankThatDoesNotCome) {
  begin("qwen3", DType::kF32, 0.3, Loading::kDirect);
  EXPECT_EQ(during_passes([&] {
              const auto first = rank(0);
              first->begin(4);
              first->update_norm(0, 8);
              first->finish();
            }),
            "");
  EXPECT_TRUE(receiver_->holds());
  const double before = seconds_now();
  expect_has(failure_of([&] { receiver_->take_new([&] { return seconds_now() > before + 10; }); }),
             "version 4: 1 of 2 ranks sent their part, no other within 0.3 s");
  EXPECT_LT(seconds_now() - before, 5);
}

// A long pass makes no sender late.
TEST_F(Deaths, PassesMayTakeLongerThanTheDeadline) {
  begin("qwen3", DType::kF32, 0.3, Loading::kDirect);
  const auto first = rank(0), other = rank(1);
  auto sending = std::async(std::launch::async, [&] { return failure_of([&] { first->begin(1); }); });
  std::this_thread::sleep_for(
      std::chrono::milliseconds(700));  // a pass, between which and the next it begins
  EXPECT_EQ(during_passes([&] {
              EXPECT_EQ(sending.get(), "");
              first->update_norm(0, 8);
              other->begin(1);
            }),
            "");
  expect_next_sync(2);
}

// The deadline is of each message, not of the sync; and so of the second sync of a connection.
TEST_F(Deaths, ASyncMayTakeLongerThanTheDeadline) {
  constexpr double kDeadline = 0.6;
  for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
    begin("qwen3", DType::kF32, kDeadline, loading);
    const auto loaded = models::load_model(path(), {});
    EXPECT_EQ(during_passes([&] {
                Sender sender(socket(), table(), {.chunk_bytes = 4096});
                for (const int64_t version : {1, 2}) {
                  sender.begin(version);
                  int sent = 0;
                  for (const WeightSpec& spec : table().specs()) {
                    const Tensor value = loaded->decoder.parameters().value(spec.name);
                    sender.add(spec.name, value);
                    if (value.bytes() >= 4096 && sent++ < 5)  // a chunk
                      std::this_thread::sleep_for(std::chrono::milliseconds(200));
                  }
                  const SendResult result = sender.finish();
                  EXPECT_TRUE(result.published);
                  EXPECT_GT(result.seconds, kDeadline);
                }
              }),
              "");
    EXPECT_EQ(std::exchange(taken_, {}).size(), 2u);
    EXPECT_EQ(expected(), hashes_of(store()));
  }
}

}  // namespace
}  // namespace temper::exchange
