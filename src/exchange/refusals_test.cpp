// Everything that may go wrong between a sender and a receiver: the old weights stay.
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "exchange/raw_sender.h"

namespace temper::exchange {
namespace {

TEST_F(Exchange, EveryErrorLeavesTheOldWeights) {
  const std::string norm = "norm.weight", all = R"({"shape":[32],"runs":[[0,32]]})";
  using Do = std::function<void(RawSender&)>;
  const std::vector<std::pair<Do, const char*>> all_errors{
      {[&](RawSender& s) { s.ask(s.update(norm, all, 32)); }, "'update' came before begin"},
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
       "'ende' is no message"},
      {[&](RawSender& s) { s.begin(1, 8192); }, "expected 8.00 KiB that cannot shrink"},
      {[&](RawSender& s) { s.ask(s.begin_message()); }, "begin came without shared memory"},
      {[&](RawSender& s) {
         s.begin();
         Json update = s.update(norm, all, 32);
         update.set("hash", "0123");
         s.ask(update);
       },
       "its bytes changed on the way"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm, R"({"shape":[33],"runs":[[0,32]]})", 32)); },
       "is [33], expected [32]; send the weights of the same model"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm, R"({"shape":[32],"runs":[[1,32]]})", 32)); },
       "found 32 elements from 1 on"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm, all, 32, "int32")); },
       "is int32, expected float32, bfloat16 or float16"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm, all, 32, "float32", 4092)); },
       "count is 32, expected 1 to 1"},
      {[&](RawSender& s) { s.begin(), s.ask(s.update(norm, all, 32, "float32", 2)); },
       "between two elements"},
  };
  for (const auto& [what, part] : all_errors) {
    begin();
    const std::string error = beside([&] {
      RawSender sender(socket(), table());
      what(sender);
    });
    expect_old(error, part);
    taken_.clear();
  }
}

TEST_F(Exchange, ATensorOfWhichAPartCameIsNamed) {
  begin();
  const auto loaded = models::load_model(path(), {});
  const std::string error = beside([&] {
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

// However many chunks have come, of either kind of stream.
TEST_F(Exchange, ASenderThatDiesAfterAnyChunkLeavesTheOldWeights) {
  for (const char* type : {"qwen3", "qwen3_moe", "gpt_oss"})
    for (const Names names : {Names::kPacked, Names::kCheckpoint}) {
      begin(type);
      int64_t pieces = 0;
      for (bool more = true; more; ++pieces) {
        EXPECT_EQ(beside([&] { more = send_pieces(pieces, names); }), "");
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
    const std::string error = beside([&] {
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
  const std::string error = beside([&] {
    RawSender sender(socket(), table());
    sender.ask(sender.begin_message(), opened);
  });
  ::close(opened);
  expect_old(error, "is not sealed, expected 4.00 KiB that cannot shrink");
}

TEST_F(Exchange, ALostOrHungSenderLeavesTheOldWeights) {
  for (const bool hangs : {false, true}) {
    begin("qwen3", DType::kF32, 0.3);
    const std::string error = beside([&] {
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
  expect_has(failure_of([&] { send(1); }), "nobody takes weights there");
}

TEST_F(Exchange, AnotherModelProtocolOrMachineIsRefused) {
  begin();
  const auto other = tiny_model({.type = "llama"});
  expect_old(beside([&] { Sender(socket(), other->decoder.parameters().table()); }),
             "the sender's model has other names, shapes or dtypes");
  const auto greet = [&](const char* key, Json value) {
    return beside([&] {
      Connection connection(connect_to(socket(), 20), "the receiver", 20);
      Json hello = hello_message(table());
      hello.set(key, std::move(value));
      connection.send(hello);
      const Json answer = connection.receive().json;
      if (const Json* error = answer.find("error")) throw Error(error->as_string());
    });
  };
  expect_has(greet("protocol", 1), "the sender speaks protocol 1, the receiver 3");
  expect_has(greet("boot", "zz"), "another machine (boot zz");
  expect_has(greet("memory", "tape"), "lie in memory of 'tape'");
  EXPECT_EQ(greet("memory", "cpu"), "");
}

TEST_F(Exchange, OnlyOneListensAndOnlyAtASocket) {
  begin();
  expect_has(failure_of([&] { Receiver(socket(), store()); }), "another process listens there");
  write_file(files_ / "file", "");
  expect_has(failure_of([&] { Receiver(files_ / "file", store()); }), "is there and no socket");
  expect_has(failure_of([&] { Receiver(std::string(200, 'a'), store()); }), "choose a shorter one");
  receiver_.reset();
  EXPECT_FALSE(exists(socket()));
  const auto narrow = tiny_model({.base_dtype = primitives::FrozenFormat::kFloat8});
  expect_has(failure_of([&] { Receiver(socket(), narrow->decoder.parameters()); }), "kept in 8 or 4 bits");
}

}  // namespace
}  // namespace temper::exchange
