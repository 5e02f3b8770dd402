#include "checkpoints/states/training_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/process.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

Tensor filled(Shape shape, float value) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(shape.numel()), value)).reshape(shape);
}

void add_tensors(StateWriter& writer, const std::string& file,
                 const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.shape(), tensor.dtype()});
  writer.add_tensors(file, infos, [&](size_t i) { return tensors[i].second; });
}

std::string write_state(const std::string& root, int64_t step) {
  StateWriter writer(root, step);
  add_tensors(writer, "model.safetensors",
              {{"w", filled({3, 2}, static_cast<float>(step))}, {"b", filled({2}, 1)}});
  add_tensors(writer, "optimizer.safetensors", {{"w", filled({2}, 0.5f)}});
  writer.add_json("state.json", Json::Object{{"step", step}, {"loss", 0.25}});
  writer.add_file("notes.txt", "hello");
  return writer.commit();
}

void flip_bit(const std::string& path, size_t at, int bit = 0) {
  std::string bytes = read_file(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ (1 << bit));
  write_file(path, bytes);
}

std::vector<int64_t> steps_of(const std::string& root) {
  std::vector<int64_t> steps;
  for (const StateInfo& state : list_states(root)) steps.push_back(state.step);
  return steps;
}

class TrainingState : public testing::Test {
 protected:
  std::string open_error(const std::string& path) {
    return error_of([&] { StateReader::open(path); });
  }
  TemporaryDirectory folder;
  std::string root = folder / "checkpoints";
};

TEST_F(TrainingState, ReadsWhatWasWritten) {
  EXPECT_EQ(write_state(root, 123), root + "/step-000123");
  const std::optional<StateReader> state = open_newest(root);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step(), 123);
  EXPECT_EQ(state->files(), (std::vector<std::string>{"model.safetensors", "notes.txt",
                                                      "optimizer.safetensors", "state.json"}));
  EXPECT_EQ(state->json().at("step").as_int(), 123);
  EXPECT_EQ(state->tensors("model.safetensors").tensor("w").values<float>()[5], 123.f);
  EXPECT_EQ(state->file("notes.txt"), "hello");
  expect_has(error_of([&] { state->json("stat.json"); }), "expected one of: model.safetensors");
  EXPECT_EQ(list_directory(root), std::vector<std::string>{"step-000123"});
  EXPECT_EQ(StateReader::open(root + "/step-000123/").step(), 123);
}

TEST_F(TrainingState, TensorsMayBeMadeOneAtATime) {
  StateWriter writer(root, 0);
  writer.add_tensors("t.safetensors", {{"a", {2}, DType::kF32}, {"b", {2}, DType::kF32}},
                     [](size_t i) { return filled({2}, static_cast<float>(i)); });
  writer.commit();
  EXPECT_EQ(open_newest(root)->tensors("t.safetensors").tensor("b").values<float>()[1], 1.f);
}

TEST_F(TrainingState, ListsByStep) {
  EXPECT_TRUE(list_states(root).empty());
  EXPECT_FALSE(open_newest(root));
  for (const int64_t step : {1'000'000, 20, 3}) write_state(root, step);
  make_directories(root + "/step-best");
  make_directories(root + "/step-7");
  write_file(root + "/step-000009", "a file");
  EXPECT_EQ(steps_of(root), (std::vector<int64_t>{3, 20, 1'000'000}));
  EXPECT_EQ(open_newest(root)->step(), 1'000'000);
}

TEST_F(TrainingState, ReplacesTheSameStepAtOnce) {
  write_state(root, 5);
  StateWriter writer(root, 5);
  writer.add_json("state.json", Json::Object{{"again", true}});
  EXPECT_EQ(open_newest(root)->files().size(), 4u);
  writer.commit();
  EXPECT_EQ(open_newest(root)->files().size(), 1u);
  EXPECT_EQ(list_directory(root), std::vector<std::string>{"step-000005"});
}

TEST_F(TrainingState, AnUnfinishedWriterLeavesNothing) {
  write_state(root, 1);
  {
    StateWriter writer(root, 2);
    writer.add_json("state.json", Json::Object{});
    EXPECT_EQ(list_directory(root).size(), 2u);
  }
  EXPECT_EQ(list_directory(root), std::vector<std::string>{"step-000001"});
}

TEST_F(TrainingState, WriterRefusesWrongNamesAndValues) {
  StateWriter writer(root, 1);
  writer.add_json("a.json", Json::Object{});
  for (const char* name : {"a.json", "manifest.json", "../x", "x/y", "", ".."})
    error_of([&] { writer.add_file(name, ""); }, ErrorKind::kDefect);
  expect_has(error_of([&] {
               writer.add_json("b.json", Json::Object{{"loss", std::nan("")}});
             }),
             "finite numbers");
  writer.commit();
  EXPECT_EQ(open_newest(root)->files(), std::vector<std::string>{"a.json"});
  expect_has(error_of([&] { writer.commit(); }, ErrorKind::kDefect), "is committed");
  expect_has(error_of([&] { StateWriter(root, -1); }, ErrorKind::kDefect), "step -1");
}

TEST_F(TrainingState, FindsEveryKindOfDamage) {
  const auto damaged = [&](const std::function<void(const std::string&)>& damage) {
    const std::string path = write_state(root, 4);
    EXPECT_EQ(open_error(path), "");
    damage(path);
    return open_error(path);
  };
  expect_has(damaged([](const std::string& p) { flip_bit(p + "/model.safetensors", 100); }),
             "model.safetensors] found the hash ");
  expect_has(damaged([](const std::string& p) { write_file(p + "/notes.txt", "hell"); }),
             "notes.txt] found 4 bytes, manifest.json says 5");
  expect_has(damaged([](const std::string& p) { remove_all(p + "/state.json"); }),
             "state.json] found no such file");
  expect_has(damaged([](const std::string& p) { remove_all(p + "/manifest.json"); }),
             "manifest.json] cannot open");
  expect_has(damaged([](const std::string& p) {
               write_file(p + "/manifest.json", read_file(p + "/manifest.json").substr(0, 100));
             }),
             "not valid JSON");
  expect_has(damaged([](const std::string& p) { write_file(p + "/manifest.json", R"({"version":2})"); }),
             "found version 2, expected 1");
  expect_has(damaged([](const std::string& p) {
               write_file(p + "/manifest.json", R"({"version":1,"step":3,"files":{}})");
             }),
             "found step 3, expected 4");
  expect_has(damaged([](const std::string& p) {
               write_file(p + "/manifest.json",
                          R"({"version":1,"step":4,"files":{"../x":{"size":0,"hash":""}}})");
             }),
             "expected a plain name");
  expect_has(open_error(root + "/none"), "no such folder");
  expect_has(open_error(root), "is not a training state");
}

TEST_F(TrainingState, NoFlippedBitGoesUnseen) {
  const std::string path = write_state(root, 6);
  for (const std::string& name : list_directory(path)) {
    const std::string file = path + "/" + name, whole = read_file(file);
    for (size_t at = 0; at<whole.size(); at += whole.size()> 200 ? 7 : 1) {
      if (whole[at] == '\n') continue;  // some flips give another space of JSON, which changes nothing
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      FileWriter writer(file);
      writer.write(bytes);
      writer.close();
      EXPECT_THROW(StateReader::open(path), Error) << name << " byte " << at;
    }
    write_file(file, whole);
  }
  EXPECT_EQ(open_error(path), "");
}

TEST_F(TrainingState, FallsBackToTheNewestIntactState) {
  for (const int64_t step : {1, 2, 3}) write_state(root, step);
  flip_bit(root + "/step-000003/optimizer.safetensors", 8);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest(root)->step(), 2);
  const std::string warning = testing::internal::GetCapturedStderr();
  expect_has(warning, "step-000003/optimizer.safetensors] found the hash");
  expect_has(warning, "damaged and is skipped");
  remove_all(root + "/step-000001/state.json");
  remove_all(root + "/step-000002/manifest.json");
  testing::internal::CaptureStderr();
  expect_has(error_of([&] { open_newest(root); }), "found 3 checkpoints, none of them intact");
  testing::internal::GetCapturedStderr();
}

TEST_F(TrainingState, SweepsWhatKilledProcessesLeft) {
  write_state(root, 1);
  ProcessName gone = this_process(), other = this_process();
  gone.number = 999999999;
  other.host = "elsewhere_0000";
  const std::string half = ".tmp-step-000002-" + to_string(gone), foreign = ".tmp-other-" + to_string(gone),
                    elsewhere = ".tmp-step-000003-" + to_string(other), nameless = ".tmp-step-000004";
  for (const std::string& name : {half, foreign, elsewhere, nameless}) make_directories(root + "/" + name);
  write_file(root + "/" + half + "/model.safetensors", "half");
  // Killed between two renames.
  rename_path(write_state(root, 9), root + "/.tmp-step-000009.old-" + to_string(gone));
  testing::internal::CaptureStderr();
  EXPECT_EQ(sweep_temporary(root), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  expect_has(said, "step-000009] put back");
  expect_has(said, elsewhere + "] belongs to process " + std::to_string(other.number) + " of another host");
  EXPECT_EQ(list_directory(root),
            (std::vector<std::string>{foreign, elsewhere, nameless, "step-000001", "step-000009"}));
  EXPECT_EQ(open_newest(root)->step(), 9);
  EXPECT_EQ(sweep_temporary(folder / "none"), 0);
}

TEST_F(TrainingState, PrunesAllButTheNewestAndTheProtected) {
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) write_state(root, step);
  EXPECT_EQ(prune_states(root, 2, {2}), (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(list_directory(root), (std::vector<std::string>{"step-000002", "step-000005", "step-000006"}));
  remove_all(root + "/step-000006/state.json");  // a damaged state does not count as kept
  EXPECT_EQ(prune_states(root, 2, {}), std::vector<int64_t>{});
  EXPECT_EQ(prune_states(root, 1, {}), std::vector<int64_t>{2});
  EXPECT_EQ(steps_of(root), (std::vector<int64_t>{5, 6}));
  expect_has(error_of([&] { prune_states(root, 0, {}); }), "expected at least 1");
}

TEST_F(TrainingState, AFullDiskLeavesOlderStatesUntouched) {
  write_state(root, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of(
      [&] {
        StateWriter writer(root, 2);
        writer.add_json("state.json", Json::Object{});
        const auto add = [&] { add_tensors(writer, "model.safetensors", {{"w", filled({50'000}, 1)}}); };
        EXPECT_THROW(add(), Error);
        error_of([&] { writer.commit(); }, ErrorKind::kDefect);  // must not pretend
        add();
      },
      ErrorKind::kDefect);
  const std::string first = error_of(
      [&] {
        StateWriter writer(root, 3);
        add_tensors(writer, "model.safetensors", {{"w", filled({50'000}, 1)}});
      },
      ErrorKind::kResources);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  expect_has(error, "a file of it failed");
  expect_has(first, "model.safetensors] cannot write");
  EXPECT_EQ(list_directory(root), std::vector<std::string>{"step-000001"});
  EXPECT_EQ(open_newest(root)->step(), 1);
}

TEST_F(TrainingState, AsksForSpaceBeforeWriting) {
  require_free_disk(root, 1);
  const std::string error =
      error_of([&] { require_free_disk(root, std::numeric_limits<int64_t>::max()); }, ErrorKind::kResources);
  expect_has(error, "needs 8192.00 PiB, has ");
  StateWriter writer(root, 1);
  expect_has(error_of(
                 [&] {
                   writer.add_tensors("x.safetensors", {{"w", {int64_t{1} << 50}, DType::kF32}}, {});
                 },
                 ErrorKind::kResources),
             "needs 4.00 PiB, has ");
}

}  // namespace
}  // namespace temper::checkpoints
