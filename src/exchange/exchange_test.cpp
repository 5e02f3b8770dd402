// Weights that travel between a sender and a receiver.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "exchange/exchange_fixture.h"
#include "tests/support/sanitizers.h"

namespace temper::exchange {
namespace {

TEST_F(Exchange, BothKindsOfNamesGiveTheBitsOfTheFolder) {
  for (const char* type : kTypes)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const Names names : {Names::kPacked, Names::kCheckpoint})
        for (const int64_t chunk_bytes : {int64_t{4096}, int64_t{64} << 20}) {
          begin(type, dtype);
          const uint64_t before = store().version();
          const SendResult result = sync(3, {.names = names, .chunk_bytes = chunk_bytes});
          EXPECT_TRUE(result.published);
          EXPECT_EQ(result.num_unknown, 0);
          EXPECT_EQ(result.chunks == 1, chunk_bytes > 4096);
          EXPECT_NE(store().version(), before);
          ASSERT_EQ(taken_.size(), 1u);
          EXPECT_EQ(std::exchange(taken_, {})[0].version, 3);
          const auto loaded = models::load_model(path(), {.dtype = dtype});
          EXPECT_EQ(differences(hashes_of(loaded->decoder.parameters()), hashes_of(store())),
                    std::vector<std::string>())
              << type << (names == Names::kPacked ? ", packed" : ", checkpoint");
          EXPECT_EQ(expected(), hashes_of(store())) << type;
          EXPECT_NE(old_, hashes_of(store())) << type;
        }
}

// Nothing is visible before the pass that follows finish, however much came before.
TEST_F(Exchange, NothingIsVisibleBeforeItIsWhole) {
  begin();
  std::promise<void> sent, looked;
  bool has_sent = false;  // or failed
  auto sending = std::async(std::launch::async, [&] {
    const auto unlock = std::shared_ptr<void>(nullptr, [&](void*) {
      if (!std::exchange(has_sent, true)) sent.set_value();
    });
    Sender sender(socket(), table(), {.chunk_bytes = 4096});
    sender.begin(1);
    send_folder(sender, *folder_, table(), Names::kPacked);
    has_sent = true;
    sent.set_value();
    looked.get_future().wait();
    return sender.finish().published;
  });
  sent.get_future().wait();
  const uint64_t version = store().version();
  EXPECT_FALSE(receiver_->take_new());
  EXPECT_EQ(old_, hashes_of(store()));
  EXPECT_EQ(store().version(), version);
  looked.set_value();
  std::optional<Receiver::Taken> taken;
  while (!taken && sending.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    EXPECT_EQ(store().version(), version);
    taken = receiver_->take_new();
  }
  EXPECT_EQ(expected(), hashes_of(store()));
  EXPECT_TRUE(sending.get());
}

TEST_F(Exchange, UnknownNamesAreCountedAndNamed) {
  begin();
  SendResult result;
  EXPECT_EQ(during_passes([&] {
              Sender sender(socket(), table(), {.names = Names::kCheckpoint});
              sender.begin(1);
              send_folder(sender, *folder_, table(), Names::kCheckpoint);
              for (int i = 0; i < 12; ++i)
                sender.add(fmt::format("extra.{:02}", i), Tensor::from(std::vector<float>{1, 2}));
              result = sender.finish();
            }),
            "");
  EXPECT_TRUE(result.published);
  EXPECT_EQ(result.num_unknown, 12);
  ASSERT_EQ(result.unknown.size(), 10u);
  EXPECT_EQ(result.unknown[0], "extra.00");
  EXPECT_EQ(expected(), hashes_of(store()));
}

TEST_F(Exchange, TensorsThatFilesHoldForNothingArePassedOver) {
  begin("gemma3_text");
  ASSERT_FALSE(table().ignored().empty());
  SendResult result;
  EXPECT_EQ(during_passes([&] {
              Sender sender(socket(), table(), {.names = Names::kCheckpoint});
              sender.begin(1);
              send_folder(sender, *folder_, table(), Names::kCheckpoint);
              for (const auto& [name, reason] : table().ignored())
                sender.add(name, Tensor::from(std::vector<float>{1, 2}));
              result = sender.finish();
            }),
            "");
  EXPECT_TRUE(result.published);
  EXPECT_EQ(result.num_unknown, 0);
}

// Files may have one tensor in place of those of all experts, but not both.
TEST_F(Exchange, StackedExpertsAreThoseOfSingleOnes) {
  for (const bool both : {false, true}) {
    begin("qwen3_moe");
    const auto other = models::load_model(path(), {});
    int64_t stacked = 0;
    const std::string error = during_passes([&] {
      Sender sender(socket(), table(), {.names = Names::kCheckpoint, .chunk_bytes = 4096});
      sender.begin(1);
      for (const WeightSpec& spec : table().specs()) {
        if (!spec.stacked.empty()) {
          ++stacked;
          sender.add(spec.stacked, other->decoder.parameters().value(spec.name).reshape(spec.stacked_shape));
        }
        if (!spec.stacked.empty() && !both) continue;
        for (const WeightSource& source : spec.sources) sender.add(source.name, folder_->tensor(source.name));
      }
      sender.finish();
    });
    EXPECT_GT(stacked, 0);
    if (both) {
      expect_has(error, "' came in addition to another form of ");
      EXPECT_EQ(old_, hashes_of(store()));
      continue;
    }
    EXPECT_EQ(error, "");
    EXPECT_EQ(differences(expected(), hashes_of(store())), std::vector<std::string>());
  }
}

// Of another rank count of the trainer, with every kind of division.
TEST_F(Exchange, RanksSendWhatTheyOwnAndTheReceiverHasWholeTensors) {
  for (const char* type : {"qwen3", "qwen3_moe", "gpt_oss"})
    for (const Mesh& mesh :
         {Mesh{}, Mesh{.shard = 2, .shard_level = 3}, Mesh{.shard = 4, .shard_level = 3}, Mesh{.tensor = 2},
          Mesh{.tensor = 4}, Mesh{.shard = 2, .tensor = 2, .shard_level = 3},
          Mesh{.replicate = 2, .tensor = 2}, Mesh{.expert = 2}}) {
      if (mesh.expert > 1 && std::string_view(type) == "qwen3") continue;
      begin(type);
      EXPECT_EQ(during_passes([&] {
                  for (int i = 0; i < mesh.size(); ++i) {
                    const int rank = mesh.size() - 1 - i;  // in any order
                    layers::ParameterStore own(table(), DType::kF32, {}, {}, mesh, rank);
                    checkpoints::load_rows(*folder_, own.table(), own.layout(),
                                           [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
                                             own.set_rows(spec.name, first, rows);
                                           });
                    Sender sender(socket(), table(),
                                  {.chunk_bytes = 8192, .rank = rank, .ranks = mesh.size()});
                    sender.begin(5);
                    send_owned(sender, own.placed(), rank);
                    const bool published = sender.finish().published;
                    EXPECT_EQ(published, i + 1 == mesh.size());
                  }
                }),
                "")
          << type << ", " << to_string(mesh);
      EXPECT_EQ(differences(expected(), hashes_of(store())), std::vector<std::string>())
          << type << ", " << to_string(mesh);
    }
}

TEST(Fingerprints, DifferencesAreNamedOnEitherSide) {
  const Hashes sent{{"a", {"float32", "1"}}, {"b", {"float32", "2"}}, {"c", {"bfloat16", "3"}}},
      received{{"a", {"float32", "1"}}, {"c", {"float32", "3"}}, {"d", {"float32", "4"}}};
  EXPECT_EQ(differences(sent, received), (std::vector<std::string>{"b: the receiver does not have it",
                                                                   "c: sent bfloat16 3, received float32 3",
                                                                   "d: the sender does not have it"}));
}

// Elements of a tensor may be taken from several places of one that the sender has.
TEST_F(Exchange, RunsNeedNotFollowOneAnotherWhereTheyComeFrom) {
  begin();
  const Tensor half = Tensor::from(std::vector<float>(16, 1)),
               other = Tensor::from(std::vector<float>(16, 2));
  EXPECT_EQ(during_passes([&] {
              Sender sender(socket(), table(), {});
              sender.begin(1);
              std::vector<float> values(32);
              for (size_t i = 0; i < 32; ++i) values[i] = i < 16 ? 2 : 1;
              const std::vector<Slice> swapped{{0, 16, 16}, {16, 0, 16}};
              sender.add("norm.weight", {32}, swapped, Tensor::from(values));
              const auto loaded = models::load_model(path(), {});
              for (const WeightSpec& spec : table().specs())
                if (spec.name != "norm.weight")
                  sender.add(spec.name, loaded->decoder.parameters().value(spec.name));
              EXPECT_TRUE(sender.finish().published);
            }),
            "");
  const Tensor norm = store().value("norm.weight");
  EXPECT_EQ(hash_of(norm.narrow(0, 0, 16)), hash_of(half));
  EXPECT_EQ(hash_of(norm.narrow(0, 16, 16)), hash_of(other));
}

// However small they are, a message has a bounded number of pieces.
TEST_F(Exchange, ManySmallTensorsAreSeveralMessages) {
  begin();
  SendResult result;
  EXPECT_EQ(during_passes([&] {
              Sender sender(socket(), table(), {});
              sender.begin(1);
              const Tensor one = Tensor::from(std::vector<float>{1});
              for (int i = 0; i < 4100; ++i) sender.add(fmt::format("extra.{}", i), one);
              send_folder(sender, *folder_, table(), Names::kPacked);
              result = sender.finish();
            }),
            "");
  EXPECT_EQ(result.num_unknown, 4100);
  EXPECT_EQ(result.chunks, 2);
  EXPECT_EQ(expected(), hashes_of(store()));
}

// Hashes of a folder are of the dtypes that the receiver has, or else of the files' own.
TEST_F(Exchange, HashesOfAFolderAreOfTheReceiversDtypes) {
  begin("qwen3", DType::kBF16);
  const auto files = models::load_model(path(), {});
  EXPECT_EQ(hashes_of_folder(*folder_, table(), {}), hashes_of(files->decoder.parameters()));
  EXPECT_EQ(hashes_of_folder(*folder_, table(), old_),
            hashes_of(models::load_model(path(), {.dtype = DType::kBF16})->decoder.parameters()));
}

// Halves of columns of a matrix's last two rows, in half as many bytes as they take here: one row at a time.
TEST_F(Exchange, ColumnsAreConvertedRowByRow) {
  begin();
  const Tensor& head = store().value("embedding.weight");
  const int64_t rows = head.dim(0), columns = head.dim(1), half = columns / 2;
  IncomingWeights incoming(store(), Names::kPacked, Loading::kDirect);
  std::vector<float> values(static_cast<size_t>(columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<Slice> runs{{(rows - 2) * columns + half, 0, half},
                                {(rows - 1) * columns + half, half, half}};
  const Tensor sent = Tensor::from(values).to(DType::kBF16);
  incoming.take("embedding.weight", {head.shape(), runs}, sent);
  const Tensor flat = head.reshape({head.numel()});
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(hash_of(flat.narrow(0, runs[i].whole, half)),
              hash_of(Tensor::from(values).narrow(0, runs[i].own, half)));
}

TEST_F(Exchange, OnlyNumbersOfKnownNamesAreTaken) {
  begin();
  WeightTable seeing = table();
  seeing.keep("vision.");
  layers::ParameterStore parameters(seeing, DType::kF32, {});
  IncomingWeights incoming(parameters, Names::kPacked, Loading::kStaged);
  const checkpoints::HeldElements two{{2}, {{0, 0, 2}}};
  const Tensor numbers = Tensor::from(std::vector<float>{1, 2});
  incoming.take("vision.weight", two, numbers);
  incoming.take("audio.weight", two, numbers);
  EXPECT_EQ(incoming.unknown(), std::set<std::string>{"audio.weight"});
  expect_has(failure_of([&] {
               incoming.take("norm.weight", {{32}, {{0, 0, 32}}}, Tensor::zeros({32}, DType::kI32));
             }),
             "'norm.weight' is int32, expected float32, bfloat16 or float16");
}

// A sender whose receiver has gone hears so each time.
TEST_F(Exchange, AGoneReceiverStaysGone) {
  begin();
  Sender sender(socket(), table(), {.deadline_seconds = 5});
  receiver_.reset();
  for (int i = 0; i < 3; ++i) {
    const std::string error = failure_of([&] { sender.hashes(); });
    EXPECT_TRUE(error.find("the receiver has ended") != std::string::npos ||
                error.find("closed the connection or died") != std::string::npos)
        << error;
  }
}

// What a folder holds in integers means numbers only by its form.
TEST_F(Exchange, IntegersOfAFolderAreNotSentByItsNames) {
  begin();
  const std::string folder = files_ / "integers";
  make_directories(folder);
  checkpoints::SafetensorsWriter writer(folder + "/model.safetensors", {{"extra", {2}, DType::kI8}});
  writer.add(Tensor::zeros({2}, DType::kI8));
  writer.close();
  const auto integers = checkpoints::ModelFolder::open(folder);
  expect_old(during_passes([&] {
               Sender sender(socket(), table(), {.names = Names::kCheckpoint});
               sender.begin(1);
               send_folder(sender, integers, table(), Names::kCheckpoint);
             }),
             "'extra' is I8, which is sent as the numbers it means only with --names packed");
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t count_in(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

// Shared memory with a name, which would outlive its processes; other programs have theirs there, too.
int64_t count_named_memory() {
  int64_t count = 0;
  for (const std::string& name : list_directory("/dev/shm"))
    count += name.find("temper") != std::string::npos;
  return count;
}

TEST_F(Exchange, AHundredSyncsLeaveNothingBehind) {
  begin();
  const int64_t shared = count_named_memory();
  int64_t resident = 0, descriptors = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(sync(i, {.names = i % 2 == 0 ? Names::kPacked : Names::kCheckpoint, .chunk_bytes = 1 << 16})
                    .published);
    if (i != 4) continue;
    resident = resident_bytes();
    descriptors = count_in("/proc/self/fd");
  }
  EXPECT_EQ(taken_.size(), 100u);
  if (!kSanitizerTakesMemory) {
    EXPECT_LE(resident_bytes() - resident, 1 << 20);
  }
  EXPECT_LE(count_in("/proc/self/fd"), descriptors + 1);  // of a connection that is about to be closed
  EXPECT_EQ(count_named_memory(), shared);
}

}  // namespace
}  // namespace temper::exchange
