// Weights that travel through a GPU's memory, within a process and between two.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "exchange/exchange_fixture.h"
#include "tests/support/gpu.h"

namespace temper::exchange {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr const char *kSocket = "TEMPER_TEST_WEIGHTS", *kFolder = "TEMPER_TEST_FOLDER";

class GpuExchange : public Exchange {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
    try {
      OutgoingChunk(kGpu, 4096);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();  // a container whose driver shares nothing
    }
  }
  // The model that answers lies on the GPU.
  void begin_gpu(const char* type, DType dtype, Loading loading) {
    begin(type, dtype);
    receiver_.reset();
    answering_ = std::make_unique<layers::ParameterStore>(table(), dtype, kGpu);
    for (size_t i = 0; i < store().size(); ++i) (*answering_)[i].value.copy_from(store()[i].value);
    answering_->changed();
    receiver_ = std::make_unique<Receiver>(socket(), *answering_,
                                           ReceiverOptions{.deadline_seconds = 60, .loading = loading});
  }

  std::unique_ptr<layers::ParameterStore> answering_;
};

TEST_F(GpuExchange, ChunksOfEitherMemoryGiveTheBitsOfTheFolder) {
  for (const char* type : kTypes)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const Names names : {Names::kPacked, Names::kCheckpoint})
        for (const Device memory : {Device{}, kGpu})
          for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
            begin_gpu(type, dtype, loading);
            Hashes reported;
            EXPECT_EQ(during_passes([&] {
                        Sender sender(socket(), table(),
                                      {.names = names, .chunk_bytes = 8192, .memory = memory});
                        sender.begin(1);
                        send_folder(sender, *folder_, table(), names);
                        EXPECT_TRUE(sender.finish().published);
                        reported = sender.hashes();
                      }),
                      "");
            EXPECT_EQ(differences(expected(), hashes_of(*answering_)), std::vector<std::string>()) << type;
            EXPECT_EQ(reported, hashes_of(*answering_));
          }
}

// The other process of the next test, which starts it: has the folder's weights on the GPU, and sends them.
TEST(GpuExchangeOther, DISABLED_Sends) {
  ASSERT_NE(std::getenv(kSocket), nullptr);
  const auto folder = checkpoints::ModelFolder::open(std::getenv(kFolder));
  const WeightTable table = layers::decoder_weight_table(models::configure(folder.config(), "config.json"));
  layers::ParameterStore own(table, DType::kF32, kGpu);
  checkpoints::load_rows(folder, own.table(), own.layout(),
                         [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
                           own.set_rows(spec.name, first, rows);
                         });
  Sender sender(std::getenv(kSocket), table, {.chunk_bytes = 1 << 16, .memory = kGpu});
  for (int64_t version = 1; version <= 3; ++version) {
    sender.begin(version);
    send_owned(sender, own.placed(), 0);
    EXPECT_TRUE(sender.finish().published);
  }
  EXPECT_EQ(differences(hashes_of(own), sender.hashes()), std::vector<std::string>());
}

TEST_F(GpuExchange, AnotherProcessSendsThroughTheGpusMemory) {
  for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
    begin_gpu("qwen3_moe", DType::kF32, loading);
    const pid_t child = ::fork();
    if (child == 0) {  // a process that forked after CUDA began cannot use it: it starts again
      ::setenv(kSocket, socket().c_str(), 1);
      ::setenv(kFolder, path().c_str(), 1);
      ::execl("/proc/self/exe", "test_exchange", "--gtest_also_run_disabled_tests",
              "--gtest_filter=GpuExchangeOther.DISABLED_Sends", static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0, taken = 0;
    const auto ended = [&] { return ::waitpid(child, &status, WNOHANG) == child; };
    bool gone = false;
    while (!gone) {
      taken += receiver_->take_new([&] { return gone; }) ? 1 : 0;
      gone = ended();
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(taken, 3);
    EXPECT_EQ(expected(), hashes_of(*answering_));
  }
}

}  // namespace
}  // namespace temper::exchange
