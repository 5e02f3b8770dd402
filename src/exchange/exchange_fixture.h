#pragma once
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/clock.h"
#include "exchange/receiver.h"
#include "exchange/sender.h"
#include "exchange/weight_sources.h"
#include "models/model.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::exchange {

inline const std::vector<const char*> kTypes{"qwen3",      "llama",        "gemma3_text", "qwen3_moe",
                                             "qwen3_next", "qwen3_5_text", "deepseek_v3", "gpt_oss"};

using Hashes = std::map<std::string, ParameterHash>;

// The message of an Error of any kind: bad input, or a process that is gone.
inline std::string failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A folder with other weights than the model that answers, which takes them as a program between two passes.
class Exchange : public testing::Test {
 protected:
  void begin(const char* type = "qwen3", DType dtype = DType::kF32, double deadline_seconds = 20,
             Loading loading = Loading::kStaged) {
    receiver_.reset();
    const bool experts = std::string_view(type) == "deepseek_v3";
    model_ = tiny_model({.type = type, .dtype = dtype, .experts = experts});
    const auto other = tiny_model({.type = type, .deviation = 0.2, .experts = experts});
    models::save_model(*other, path(), "");
    folder_ = std::make_unique<checkpoints::ModelFolder>(checkpoints::ModelFolder::open(path()));
    receiver_ = std::make_unique<Receiver>(socket(), store(), ReceiverOptions{deadline_seconds, loading});
    old_ = hashes_of(store());
  }

  std::string path() const { return files_ / "model"; }
  std::string socket() const { return join_path(socket_folder_, "weights.sock"); }
  layers::ParameterStore& store() { return model_->decoder.parameters(); }
  const WeightTable& table() { return store().table(); }
  Hashes expected() { return hashes_of_folder(*folder_, table(), old_); }

  // Runs `send` while the loop of passes runs, and gives what it threw.
  std::string during_passes(const std::function<void()>& send) {
    auto done = std::async(std::launch::async, [&] { return failure_of(send); });
    while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
      if (const auto taken = receiver_->take_new(
              [&] { return done.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready; }))
        taken_.push_back(*taken);
    return done.get();
  }
  SendResult sync(int64_t version, const SendOptions& options) {
    SendResult result;
    const std::string error = during_passes([&] {
      Sender sender(socket(), table(), options);
      sender.begin(version);
      send_folder(sender, *folder_, table(), options.names);
      result = sender.finish();
    });
    EXPECT_EQ(error, "");
    return result;
  }

  // A newer version has to be taken at once, whatever came before it.
  void expect_next_sync(int64_t version) {
    const double before = seconds_now();
    EXPECT_TRUE(sync(version, {}).published);
    EXPECT_LT(seconds_now() - before, 5);
    ASSERT_FALSE(taken_.empty());
    EXPECT_EQ(taken_.back().version, version);
    EXPECT_FALSE(receiver_->holds());
    EXPECT_EQ(differences(expected(), hashes_of(store())), std::vector<std::string>());
  }

  // Adds `count` pieces of 4 KiB at most, each a chunk of its own or the end of one, and closes the
  // connection; whether there were as many.
  bool send_pieces(int64_t count, Names names) {
    const auto loaded = models::load_model(path(), {});
    Sender sender(socket(), table(), {.names = names, .chunk_bytes = 4096});
    sender.begin(1);
    int64_t sent = 0;
    const auto add = [&](const std::string& name, const Tensor& value) {
      const Tensor flat = value.contiguous().reshape({value.numel()});
      for (int64_t at = 0; at < flat.numel() && sent < count; at += 1024, ++sent) {
        const int64_t some = std::min<int64_t>(1024, flat.numel() - at);
        const std::vector<Slice> run{{at, 0, some}};
        sender.add(name, value.shape(), run, flat.narrow(0, at, some));
      }
    };
    for (const WeightSpec& spec : table().specs()) {
      if (names == Names::kPacked) add(spec.name, loaded->decoder.parameters().value(spec.name));
      if (names == Names::kCheckpoint)
        for (const WeightSource& source : spec.sources) add(source.name, folder_->tensor(source.name));
    }
    return sent == count;
  }

  // That the old weights serve after this error, and that new ones still can come.
  void expect_old(const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << "found: " << error << "\nexpected: " << part;
    EXPECT_TRUE(taken_.empty());
    EXPECT_EQ(differences(old_, hashes_of(store())), std::vector<std::string>());
    EXPECT_TRUE(sync(7, {}).published);
    EXPECT_EQ(differences(expected(), hashes_of(store())), std::vector<std::string>());
  }

  TemporaryDirectory files_;
  std::string socket_folder_ = files_.path();
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<checkpoints::ModelFolder> folder_;
  std::unique_ptr<Receiver> receiver_;
  Hashes old_;
  std::vector<Receiver::Taken> taken_;
};

}  // namespace temper::exchange
