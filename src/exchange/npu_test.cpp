// Weights between two processes on an NPU, by its contract: chunks of its own memory, no second copy of
// weights.
#include "base/process.h"
#include "exchange/npu_fixture.h"

namespace temper::exchange {
namespace {

Json npu_hello(const char* memory_of, const WeightTable& table) {
  return Json::Object{{"type", "hello"}, {"protocol", kProtocol},  {"boot", this_process().boot},
                      {"memory", "npu"}, {"memory_of", memory_of}, {"model", fingerprint_of(table)}};
}

Json begin_message() {
  return Json::Object{{"type", "begin"}, {"version", 1}, {"names", "packed"},
                      {"rank", 0},       {"ranks", 1},   {"chunk_bytes", 4096}};
}

class Npu : public Exchange {
 protected:
  static void SetUpTestSuite() { register_npu(); }
  void SetUp() override { npu_number = 3; }

  // The model that answers lies on the NPU.
  void begin_npu(const char* type, DType dtype, Loading loading = Loading::kDirect) {
    begin(type, dtype);
    receiver_.reset();
    answering_ = std::make_unique<layers::ParameterStore>(table(), dtype, kNpu);
    for (size_t i = 0; i < store().size(); ++i) (*answering_)[i].value.copy_from(store()[i].value);
    answering_->changed();
    receiver_ = std::make_unique<Receiver>(socket(), *answering_,
                                           ReceiverOptions{.deadline_seconds = 20, .loading = loading});
  }
  std::string send(const SendOptions& options) {
    return during_passes([&] {
      Sender sender(socket(), table(), options);
      sender.begin(1);
      send_folder(sender, *folder_, table(), options.names);
      EXPECT_TRUE(sender.finish().published);
      sent_ = sender.hashes();
    });
  }

  std::unique_ptr<layers::ParameterStore> answering_;
  Hashes sent_;
};

TEST_F(Npu, OnlyItsHardwareLoadsInPlace) {
  for (const std::string& name : known_hardware_names())
    EXPECT_EQ(loading_for(known_hardware(name).hardware) == Loading::kDirect, name.starts_with("ascend"))
        << name;
}

TEST_F(Npu, ChunksOfEitherMemoryGiveTheBitsOfTheFolder) {
  for (const char* type : kTypes)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const Names names : {Names::kPacked, Names::kCheckpoint})
        for (const Device memory : {Device{}, kNpu})
          for (const Loading loading : {Loading::kStaged, Loading::kDirect}) {
            begin_npu(type, dtype, loading);
            EXPECT_EQ(send({.names = names, .chunk_bytes = 4096, .memory = memory}), "");
            EXPECT_EQ(differences(expected(), hashes_of(*answering_)), std::vector<std::string>()) << type;
            EXPECT_EQ(sent_, hashes_of(*answering_));
          }
}

// Whoever has finished its part needs its chunk no longer.
TEST_F(Npu, RanksSendThroughTheirOwnChunks) {
  begin_npu("qwen3", DType::kF32);
  const int64_t before = npu_pool().live();
  EXPECT_EQ(during_passes([&] {
              for (const int rank : {0, 1}) {
                Sender sender(socket(), table(),
                              {.chunk_bytes = 4096, .memory = kNpu, .rank = rank, .ranks = 2});
                sender.begin(1);
                if (rank == 1) send_folder(sender, *folder_, table(), Names::kPacked);
                EXPECT_EQ(sender.finish().published, rank == 1);
              }
            }),
            "");
  EXPECT_EQ(differences(expected(), hashes_of(*answering_)), std::vector<std::string>());
  EXPECT_EQ(npu_pool().live(), before);
}

// Between two passes, or where there are none any more.
TEST_F(Npu, AChunkOfASyncThatEndsIsGivenBack) {
  for (const bool receiver_ends : {false, true}) {
    begin_npu("qwen3", DType::kF32);
    std::unique_ptr<Sender> sender;
    EXPECT_EQ(during_passes([&] {
                sender = std::make_unique<Sender>(socket(), table(),
                                                  SendOptions{.chunk_bytes = 4096, .memory = kNpu});
                sender->begin(1);
              }),
              "");
    EXPECT_EQ(npu_imports, 1);
    if (receiver_ends) {
      receiver_.reset();
    } else {
      sender.reset();
      for (const double until = seconds_now() + 5; npu_imports > 0 && seconds_now() < until;)
        receiver_->take_new([end = seconds_now() + 0.1] { return seconds_now() > end; });
    }
    EXPECT_EQ(npu_imports, 0);
  }
}

// The chunk is the sender's; this process's own is what it converts.
TEST_F(Npu, ExtraMemoryIsAtMostAChunk) {
  constexpr int64_t kChunk = 1 << 14;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Device memory : {Device{}, kNpu}) {
      begin_npu("qwen3_moe", dtype);
      npu_pool().reset_peak();
      const int64_t before = npu_pool().live();
      EXPECT_EQ(send({.chunk_bytes = kChunk, .memory = memory}), "");
      const int64_t senders = memory == kNpu ? 2 * kChunk : 0;  // its chunk, and what it puts there
      EXPECT_LE(npu_pool().peak_live() - before, kChunk + senders);
      EXPECT_EQ(npu_pool().live(), before);
    }
}

// Without UUIDs the machine's number says which device it is, whatever a process counts.
TEST_F(Npu, AnotherDeviceIsRefused) {
  begin_npu("qwen3", DType::kF32);
  const std::string error = during_passes([&] {
    Connection connection(connect_to(socket(), 20), "the receiver", 20);
    connection.send(npu_hello("npu 4", table()));
    throw Error(connection.receive().json.at("error").as_string());
  });
  EXPECT_NE(error.find("in memory of 'npu' (npu 4), which the receiver's npu:0 (npu 3) cannot read"),
            std::string::npos)
      << error;
  begin("qwen3");  // a receiver on the CPU
  const std::string on_cpu = send({.memory = kNpu});
  EXPECT_NE(on_cpu.find("which the receiver's cpu cannot read"), std::string::npos) << on_cpu;
}

// A block of the device's memory that does not come, or not whole, delays no other.
TEST_F(Npu, AHungBlockDoesNotDelayOthers) {
  begin_npu("qwen3", DType::kF32);
  const auto begin_without_block = [&] {
    auto connection = std::make_unique<Connection>(connect_to(socket(), 20), "the receiver", 20);
    connection->send(npu_hello("npu 3", table()));
    EXPECT_EQ(connection->receive().json.find("error"), nullptr);
    connection->send(begin_message());
    return connection;
  };
  const auto hung = begin_without_block(), half = begin_without_block();
  ASSERT_EQ(::write(half->socket(), "abc", 3), 3);
  const double before = seconds_now();
  EXPECT_EQ(send({.chunk_bytes = 4096, .memory = kNpu}), "");
  EXPECT_LT(seconds_now() - before, 5);
  EXPECT_EQ(differences(expected(), hashes_of(*answering_)), std::vector<std::string>());
  expect_has(half->receive().json.at("error").as_string(), "without its file descriptors, or in pieces");
}

// A chunk whose bytes changed on the way.
TEST_F(Npu, ChecksumsAreCompared) {
  begin_npu("qwen3", DType::kF32);
  const std::string error = during_passes([&] {
    Connection connection(connect_to(socket(), 20), "the receiver", 20);
    const auto ask = [&](Json message, const device::SharedBlock* block = nullptr) {
      connection.send(message);
      if (block != nullptr) device::send_block(connection.socket(), *block);
      const Json answer = connection.receive().json;
      if (const Json* refused = answer.find("error")) throw Error(refused->as_string());
    };
    OutgoingChunk chunk(kNpu, 4096);
    ask(npu_hello("npu 3", table()));
    ask(begin_message(), chunk.block());
    const std::string before = chunk.checksum(128);
    chunk.put(0, Tensor::from(std::vector<float>{1}).on(kNpu), 0, 1);
    ask(Json::Object{{"type", "update"}, {"bytes", 128}, {"hash", before}, {"pieces", Json::Array{}}});
  });
  EXPECT_NE(error.find("its bytes changed on the way"), std::string::npos) << error;
}

}  // namespace
}  // namespace temper::exchange
