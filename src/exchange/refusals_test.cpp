// Everything that may go wrong between a sender and a receiver: the old weights stay.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.h"
#include "exchange/raw_sender.h"

namespace temper::exchange {
namespace {

class Refusals : public Exchange {
 protected:
  // What is done, and a part of the error that it is.
  using Cases = std::vector<std::pair<std::function<void(RawSender&)>, const char*>>;
  void expect_refused(const Cases& cases) {
    for (const auto& [what, part] : cases) {
      begin();
      const std::string error = during_passes([&] {
        RawSender sender(socket(), table());
        what(sender);
      });
      expect_old(error, part);
      taken_.clear();
    }
  }

  const std::string norm_ = "norm.weight", all_ = R"({"shape":[32],"runs":[[0,32]]})";
};

TEST_F(Refusals, EveryErrorLeavesTheOldWeights) {
  expect_refused({
      {[&](RawSender& s) { s.ask(s.update(norm_, all_, 32)); }, "'update' came before begin"},
      {[&](RawSender& s) {
         s.ask(Json::Object{{"type", "finish"}});
       },
       "'finish' came before begin"},
      {[&](RawSender& s) { s.ask(hello_message(table())); }, "a second hello came"},
      {[&](RawSender& s) { s.begin(), s.begin(); }, "a second begin came before finish"},
      {[&](RawSender& s) {
         s.begin(), s.ask(Json::Object{{"type", "finish"}});
       },
       "tensors did not come"},
      {[&](RawSender& s) {
         s.begin(), s.ask(Json::Object{{"type", "ende"}});
       },
       "'ende' is not a message"},
      {[&](RawSender& s) { s.begin(1, 8192); }, "expected 8.00 KiB that cannot shrink"},
      {[&](RawSender& s) { s.ask(s.begin_message()); }, "begin came without shared memory"},
      {[&](RawSender& s) {
         s.begin();
         Json update = s.update(norm_, all_, 32);
         update.set("hash", "0123");
         s.ask(update);
       },
       "its bytes changed on the way"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, R"({"shape":[33],"runs":[[0,32]]})", 32)); },
       "is [33], expected [32]; send the weights of the same model"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, R"({"shape":[32],"runs":[[1,32]]})", 32)); },
       "found 32 elements from 1 on"},
  });
}

TEST_F(Refusals, NumbersAndNamesHaveTheirBounds) {
  expect_refused({
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, all_, 32, "int32")); },
       "is int32, expected float32, bfloat16 or float16"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, all_, 32, "float3")); },
       "is float3, expected float32, bfloat16 or float16"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, all_, 0)); }, "count is 0, expected 1 to 1024"},
      {[&](RawSender& s) { s.begin(-1); }, "version is -1, expected 0 to 9223372036854775807"},
      {[&](RawSender& s) { s.begin(1, 0); }, "expected 0 B that cannot shrink"},
      {[&](RawSender& s) {
         Json begin = s.begin_message();
         begin.set("names", "short");
         SharedMemory chunk(4096);
         s.ask(begin, chunk.file());
       },
       "names are 'short', expected packed or checkpoint"},
      {[&](RawSender& s) {
         s.ask(Json::Object{{"type", "hashes"}, {"adapter", "math"}});
       },
       "this process takes no adapters"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, all_, 32, "float32", 4092)); },
       "count is 32, expected 1 to 1"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm_, all_, 32, "float32", 2)); },
       "between two elements"},
  });
}

TEST_F(Exchange, ATensorOfWhichAPartCameIsNamed) {
  begin();
  const auto loaded = models::load_model(path(), {});
  const std::string error = during_passes([&] {
    Sender sender(socket(), table(), {});
    sender.begin(1);
    for (const WeightSpec& spec : table().specs()) {
      const Tensor& value = loaded->decoder.parameters().value(spec.name);
      const int64_t count = value.numel() - (spec.name == "norm.weight" ? 12 : 0);
      const std::vector<Slice> run{{0, 0, count}};
      sender.add(spec.name, value.shape(), run, value.reshape({value.numel()}).narrow(0, 0, count));
    }
    sender.finish();
  });
  expect_old(error, "1 tensors did not come, or not all of them: 'norm.weight' (12 of 32 elements)");
}

// Of what files have in parts, or in one, each is named as it was sent.
TEST_F(Exchange, PartsOfATensorThatDidNotComeAreNamed) {
  begin("qwen3_moe");
  const auto loaded = models::load_model(path(), {});
  std::string left_out, cut;
  const std::string error = during_passes([&] {
    Sender sender(socket(), table(), {.names = Names::kCheckpoint});
    sender.begin(1);
    for (const WeightSpec& spec : table().specs()) {
      if (!spec.stacked.empty() && cut.empty()) {
        cut = spec.stacked;
        const Tensor& value = loaded->decoder.parameters().value(spec.name);
        const std::vector<Slice> all_but_one{{0, 0, value.numel() - 1}};
        sender.add(spec.stacked, spec.stacked_shape, all_but_one,
                   value.reshape({value.numel()}).narrow(0, 0, value.numel() - 1));
        continue;
      }
      for (size_t i = 0; i < spec.sources.size(); ++i) {
        if (i == 1 && left_out.empty())
          left_out = spec.sources[i].name;
        else
          sender.add(spec.sources[i].name, folder_->tensor(spec.sources[i].name));
      }
    }
    sender.finish();
  });
  expect_has(error, "2 tensors did not come, or not all of them: ");
  expect_has(error, fmt::format("'{}'", left_out));
  expect_has(error, fmt::format("'{}' (1 of ", cut));
  expect_old(error, "");
}

// However many chunks have come, of either kind of stream.
TEST_F(Exchange, ASenderThatDiesAfterAnyChunkLeavesTheOldWeights) {
  for (const char* type : {"qwen3", "qwen3_moe", "gpt_oss"})
    for (const Names names : {Names::kPacked, Names::kCheckpoint}) {
      begin(type);
      int64_t pieces = 0;
      for (bool more = true; more; ++pieces) {
        EXPECT_EQ(during_passes([&] { more = send_pieces(pieces, names); }), "");
        EXPECT_TRUE(taken_.empty());
        EXPECT_EQ(differences(old_, hashes_of(store())), std::vector<std::string>())
            << type << ", " << pieces;
      }
      EXPECT_GT(pieces, 20);
      expect_old("", "");
      taken_.clear();
    }
}

TEST_F(Exchange, ElementsThatComeTwiceAreRefused) {
  const auto runs = [](int first, int count) {
    return fmt::format(R"({{"shape":[32],"runs":[[{},{}]]}})", first, count);
  };
  for (const auto& [first, second] : {std::pair{std::pair{0, 32}, std::pair{31, 1}}, {{8, 24}, {0, 9}}}) {
    begin();
    const std::string error = during_passes([&] {
      RawSender sender(socket(), table());
      sender.begin();
      for (const auto& [at, count] : {first, second})
        sender.ask(sender.update("norm.weight", runs(at, count), count));
    });
    expect_old(error, fmt::format("elements from {} on of 'norm.weight' came twice", second.first));
    taken_.clear();
  }
}

// A sender could cut it off while it is read.
TEST_F(Exchange, MemoryThatIsNotSealedIsRefused) {
  begin();
  const int opened = ::memfd_create("not sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(opened, 4096), 0);
  const std::string error = during_passes([&] {
    RawSender sender(socket(), table());
    sender.ask(sender.begin_message(), opened);
  });
  ::close(opened);
  expect_old(error, "is not sealed, expected 4.00 KiB that cannot shrink");
  // A file on a disk has no seals at all.
  write_file(files_ / "file", std::string(4096, 'a'));
  const int file = ::open((files_ / "file").c_str(), O_RDONLY | O_CLOEXEC);
  taken_.clear();
  begin();
  const std::string of_a_file = during_passes([&] {
    RawSender sender(socket(), table());
    sender.ask(sender.begin_message(), file);
  });
  ::close(file);
  expect_old(of_a_file, "is not sealed, expected 4.00 KiB that cannot shrink");
  expect_has(failure_of([] { SharedMemory(-1); }), "of shared memory cannot be had: Invalid argument");
}

// What ranks of one sync have to have in common.
TEST_F(Exchange, RanksOfASyncSendTheSameKindOfThing) {
  for (const auto& [key, value, expected] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"names", "checkpoint", "rank 1 sends checkpoint names, ranks before it sent packed ones"},
           {"adapter", Json::Object{{"name", "math"}},
            "rank 1 sends 'math', ranks before it sent '' (an adapter's name, or the model)"}}) {
    begin();
    const std::string error = during_passes([&, &key = key, &value = value] {
      RawSender first(socket(), table(), 0, 2), second(socket(), table(), 1, 2);
      first.begin();
      Json begin = second.begin_message();
      begin.set(key, value);
      SharedMemory chunk(4096);
      second.ask(begin, chunk.file());
    });
    expect_old(error, expected);
    taken_.clear();
  }
}

TEST_F(Exchange, HelloComesFirstAndChunksHaveRoom) {
  begin();
  expect_has(failure_of([&] { Sender(socket(), table(), {.chunk_bytes = 100}); }),
             "chunks of 100 bytes are too small; expected 4096 or more");
  Connection connection(connect_to(socket(), 20), "the receiver", 20);
  connection.send(Json::Object{{"type", "hashes"}});
  expect_has(connection.receive().json.at("error").as_string(), "'hashes' came before hello");
}

TEST_F(Exchange, ALostOrHungSenderLeavesTheOldWeights) {
  for (const bool hangs : {false, true}) {
    begin("qwen3", DType::kF32, 0.3);
    const std::string error = during_passes([&] {
      auto sender = std::make_unique<Sender>(socket(), table(), SendOptions{.chunk_bytes = 4096});
      sender->begin(1);
      send_folder(*sender, *folder_, table(), Names::kPacked);
      if (!hangs) sender.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      if (hangs) sender->finish();
    });
    expect_old(error, hangs ? "sent nothing for 0.3 s" : "");
    taken_.clear();
  }
}

TEST_F(Exchange, AReceiverThatTakesNothingOrEndsIsAnErrorOfTheSender) {
  begin();
  const auto send = [&](double deadline_seconds) {
    Sender sender(socket(), table(), {.deadline_seconds = deadline_seconds});
    sender.begin(1);
    send_folder(sender, *folder_, table(), Names::kPacked);
    sender.finish();
  };
  expect_has(failure_of([&] { send(0.2); }), "the receiver did not answer within 0.2 s");
  begin();
  auto waiting = std::async(std::launch::async, [&] { return failure_of([&] { send(20); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  receiver_.reset();
  expect_has(waiting.get(), "ended before it took the weights");
  EXPECT_EQ(old_, hashes_of(store()));
  begin();
  const Connection half(connect_to(socket(), 20), "the receiver", 20);
  ASSERT_EQ(::write(half.socket(), "abc", 3), 3);  // of a message that does not end
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = seconds_now();
  receiver_.reset();
  EXPECT_LT(seconds_now() - before, 10);
  expect_has(failure_of([&] { send(1); }), "no process takes weights there");
}

TEST_F(Exchange, AnotherModelProtocolOrMachineIsRefused) {
  begin();
  const auto other = tiny_model({.type = "llama"});
  expect_old(during_passes([&] { Sender(socket(), other->decoder.parameters().table()); }),
             "the sender's model has other names, shapes or dtypes");
  const auto handshake_error = [&](const char* key, Json value) {
    return during_passes([&] {
      Connection connection(connect_to(socket(), 20), "the receiver", 20);
      Json hello = hello_message(table());
      hello.set(key, std::move(value));
      connection.send(hello);
      const Json answer = connection.receive().json;
      if (const Json* error = answer.find("error")) throw Error(error->as_string());
    });
  };
  expect_has(handshake_error("protocol", 1), "the sender speaks protocol 1, the receiver 3");
  expect_has(handshake_error("boot", "zz"), "another machine (boot zz");
  expect_has(handshake_error("memory", "tape"), "lie in memory of 'tape'");
  EXPECT_EQ(handshake_error("memory", "cpu"), "");
}

TEST_F(Exchange, OnlyOneListensAndOnlyAtASocket) {
  begin();
  expect_has(failure_of([&] { Receiver(socket(), store()); }), "another process listens there");
  write_file(files_ / "file", "");
  expect_has(failure_of([&] { Receiver(files_ / "file", store()); }), "is there and no socket");
  expect_has(failure_of([&] { Receiver(std::string(200, 'a'), store()); }), "choose a shorter one");
  expect_has(failure_of([&] { Receiver("", store()); }), "has 1 to 107 bytes, this one has 0");
  expect_has(failure_of([&] { Receiver(files_ / "absent/socket", store()); }),
             "cannot be listened at: No such file or directory");
  receiver_.reset();
  EXPECT_FALSE(exists(socket()));
  const auto narrow = tiny_model({.base_dtype = primitives::FrozenFormat::kFloat8});
  expect_has(failure_of([&] { Receiver(socket(), narrow->decoder.parameters()); }), "kept in 8 or 4 bits");
  layers::ParameterStore part(table(), DType::kF32, {}, {}, Mesh{.tensor = 2}, 0);
  expect_has(failure_of([&] { Receiver(socket(), part); }), "this process holds a part of the model");
}

// A socket at `path` that accepts no connection; `queue` of them wait.
device::Descriptor deaf_socket(const std::string& path, int queue) {
  device::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(socket.get(), queue), 0);
  return socket;
}

TEST_F(Exchange, ASocketOfAProcessThatDiedGivesWayAndABusyOneDoesNot) {
  begin();
  receiver_.reset();
  { const device::Descriptor died = deaf_socket(socket(), 1); }
  ASSERT_TRUE(exists(socket()));
  receiver_ = std::make_unique<Receiver>(socket(), store());
  expect_next_sync(1);
  receiver_.reset();
  const device::Descriptor busy = deaf_socket(socket(), 0);
  std::vector<device::Descriptor> waiting;
  const std::string error = failure_of([&] {
    for (int i = 0; i < 4; ++i) waiting.emplace_back(connect_to(socket(), 0.2));
  });
  EXPECT_EQ(error, fmt::format("[{}] who listens there took no connection within 0.2 s", socket()));
  EXPECT_FALSE(waiting.empty());
  expect_has(failure_of([&] { Receiver(socket(), store()); }), "another process listens there");
}

}  // namespace
}  // namespace temper::exchange
