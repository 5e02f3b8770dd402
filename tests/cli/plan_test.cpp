// Plans of memory and of disk, compared with what runs of the examples' shapes really take.
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cli/cli_fixture.h"
#include "tests/support/gpu.h"

namespace temper {
namespace {

constexpr double kPromised = 0.05;

class Plans : public Cli {
 protected:
  // An example with the fixture's data and `model`, of a few updates; otherwise as it is.
  static std::string command_of(const std::string& example, const std::string& model, const std::string& out,
                                const std::string& steps) {
    std::string text = read_file(TEMPER_SOURCE_DIR "/examples/" + example + ".yaml");
    const auto replace = [&](const std::string& from, const std::string& to) {
      for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
    };
    replace("build/demo", folder());
    for (const char* path : {"runs/addition/model", "runs/both/model", "/models/Qwen3-0.6B"})
      replace(path, model);
    replace("says_", "asked_");
    replace("chats.jsonl", folder() + "/train.jsonl");
    replace("held-out.jsonl", folder() + "/eval.jsonl");
    replace("    steps: 200\n", "");  // an adapter's own
    const std::string path = out + ".yaml";
    write_file(path, text);
    return "train " + path + " --output " + out + " " + steps + "--train.resume never ";
  }

  // "12.5 MiB" and its like, from a column of the table's last line.
  static double bytes_at(const std::string& table, size_t column) {
    const size_t line = table.rfind("\ntotal");
    if (line == std::string::npos) return -1;
    std::istringstream words(table.substr(line + 6));
    double number = 0;
    std::string unit;
    for (size_t i = 0; i <= column; ++i) words >> number >> unit;
    const std::string units[] = {"B", "KiB", "MiB", "GiB"};
    for (const std::string& known : units) {
      if (known == unit) return number;
      number *= 1024;
    }
    return -1;
  }

  static void expect_planned(const std::string& example, const std::string& options,
                             const std::string& model = folder() + "/model", double more = kPromised) {
    static int count = 0;
    const std::string out = folder() + "/plan_" + std::to_string(count++);
    const std::string command = command_of(example, model, out, "--train.steps 3 --eval.exact_match 0 ");
    const Outcome outcome = run(command + options + " --explain-memory");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const double planned = bytes_at(outcome.err, 0), peak = bytes_at(outcome.err, 2);
    EXPECT_GT(peak, 0) << outcome.err;
    EXPECT_GE(planned / peak, 1 - kPromised) << example << " " << options << "\n" << outcome.err;
    EXPECT_LE(planned / peak, 1 + more) << example << " " << options << "\n" << outcome.err;
    remove_all(out);
  }

  // One of each kind of region; the rest of what users may combine is nightly.
  static void expect_kinds_planned(const std::string& device) {
    expect_planned("addition/run", device + "--model.dtype float32");
    expect_planned("addition/run", device + "--model.dtype bfloat16 --train.activation_checkpointing full");
    expect_planned("lora/run", device + "--model.dtype bfloat16 --model.base_dtype nf4_double");
    expect_planned("preference/both", device);
  }
  static void expect_the_rest_planned(const std::string& device) {
    for (const std::string dtype : {"float32", "bfloat16"})
      for (const std::string checkpointing : {"none", "selective", "full"})
        expect_planned("addition/run", device + "--model.dtype " + dtype +
                                           " --train.activation_checkpointing " + checkpointing);
    expect_planned("addition/run", device + "--train.micro_batch_tokens 1024");
    expect_planned("addition/run", device +
                                       "--model.dtype bfloat16 --train.master_weights false "
                                       "--train.gradients bfloat16 --train.optimizer.moments bfloat16");
    expect_planned("addition/run", device + "--model.ops_implementation.attn_implementation eager");
    expect_planned("lora/run", device);
    expect_planned("lora/run", device + "--model.dtype bfloat16 --model.base_dtype float8_e4m3fn");
    expect_planned("lora/run", device + "--model.dtype bfloat16 --model.base_dtype nf4");
    expect_planned("adapters/run", device);
    expect_planned("preference/run", device);
    expect_planned("preference/run", device + "--preference.loss kto");
  }

  // The fixture's rows, whose answers are what rewards compare with.
  static void write_questions() {
    for (const auto& [name, most] : {std::pair<std::string, int>{"train", 400}, {"eval", 20}}) {
      std::ifstream rows(folder() + "/" + name + ".jsonl");
      std::string asked;
      std::string line;
      for (int i = 0; i < most && std::getline(rows, line); ++i) {
        Json::Array messages = Json::parse(line, name).at("messages").as_array();
        const Json answer = messages.back().at("content");
        messages.pop_back();
        asked += Json(Json::Object{{"prompt", Json(messages)}, {"answer", answer}}).dump() + "\n";
      }
      write_file(folder() + "/asked_" + name + ".jsonl", asked);
    }
  }

  // An update has as many rows as answers make, whatever train.rows_per_step is of other recipes. The plan is
  // of answers as long as they may be: where all of them are in one pass and some end early, it is less full.
  static void expect_rollouts_planned(const std::string& device) {
    write_questions();
    const std::string answers = device + "--grpo.sampling.max_new_tokens 32", model = folder() + "/model";
    expect_planned("grpo/run", answers + " --train.micro_batch_tokens 1024", model);
    for (const std::string name : {"run", "lora", "ppo"}) expect_planned("grpo/" + name, answers, model, 0.4);
  }
};

using NightlyPlans = Plans;

TEST_F(Plans, OfMemoryAreCloseOnTheCpu) { expect_kinds_planned(""); }
TEST_F(NightlyPlans, OfMemoryAreCloseOnTheCpu) { expect_the_rest_planned(""); }
TEST_F(Plans, OfRolloutsAreCloseOnTheCpu) { expect_rollouts_planned(""); }

TEST_F(Plans, OfMemoryAreCloseOnAGpu) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  expect_kinds_planned("--device cuda ");
  expect_the_rest_planned("--device cuda ");
  expect_rollouts_planned("--device cuda ");
  // Rows enough to fill a micro-batch of any size here.
  const std::string rows = read_file(folder() + "/train.jsonl");
  write_file(folder() + "/train.jsonl", rows + rows + rows + rows);
  // The example for GPUs, with random weights in the shape of its model.
  const std::string shape = folder() + "/qwen3-0.6b-shape", model = folder() + "/qwen3-0.6b";
  std::filesystem::copy(folder() + "/qwen3-tiny", shape);
  Json config = Json::parse_file(shape + "/config.json");
  for (const auto& [key, value] : Json::Object{{"hidden_size", 1024},
                                               {"intermediate_size", 3072},
                                               {"num_hidden_layers", 28},
                                               {"num_attention_heads", 16},
                                               {"num_key_value_heads", 8},
                                               {"head_dim", 128},
                                               {"vocab_size", 151936},
                                               {"max_position_embeddings", 40960}})
    config.set(key, value);
  write_file(shape + "/config.json", config.dump(2));
  ASSERT_EQ(run("init " + shape + " " + model).code, 0);
  expect_planned("qwen3_gpu/run", "", model);
  expect_planned("qwen3_gpu/run", "--train.activation_checkpointing selective", model);
  expect_planned("qwen3_gpu/run", "--train.activation_checkpointing full --train.micro_batch_tokens 65536",
                 model);
}

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code gone;
  for (auto it = std::filesystem::recursive_directory_iterator(folder, gone);
       !gone && it != std::filesystem::recursive_directory_iterator(); it.increment(gone)) {
    std::error_code vanished;
    if (const auto size = it->file_size(vanished); it->is_regular_file(vanished) && !vanished)
      bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// A wider model: compared with its checkpoints a run's small files do not count.
class DiskPlans : public Plans {
 protected:
  static void SetUpTestSuite() {
    Plans::SetUpTestSuite();
    const std::string shape = folder() + "/wide-shape";
    std::filesystem::copy(folder() + "/qwen3-tiny", shape);
    Json config = Json::parse_file(shape + "/config.json");
    config.set("intermediate_size", 4096);
    write_file(shape + "/config.json", config.dump(2));
    ASSERT_EQ(run("init " + shape + " " + folder() + "/wide").code, 0);
  }

  // The most that the run's folder holds while it runs, as far as samples tell.
  static int64_t most_bytes_of(const std::string& command, const std::string& out) {
    std::atomic<bool> done = false;
    int64_t most = 0;
    std::thread watcher([&] {
      for (; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
        most = std::max(most, bytes_in(out));
    });
    const Outcome outcome = run(command);
    done = true;
    watcher.join();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    remove_all(out);
    return most;
  }

  // What --dry-run says, and the most that the run's folder holds while it runs.
  static void expect_planned(const std::string& name, const std::string& options,
                             const std::string& held_out = "0.001") {
    const std::string out = folder() + "/disk_" + name;
    const std::string command =
        command_of("addition/run", folder() + "/wide", out, "--eval.exact_match 0 ") + "--model.path " +
        folder() + "/wide --data.max_length 64 --train.rows_per_step 1 --train.optimizer.lr 0.5 " +
        "--data.eval [] --data.eval_fraction " + held_out + " " + options;
    const Outcome dry = run(command + " --dry-run");
    ASSERT_EQ(dry.code, 0) << dry.err;
    const size_t at = dry.out.find("\ndisk ");
    ASSERT_NE(at, std::string::npos) << dry.out;
    const double planned = bytes_at("\ntotal" + dry.out.substr(at + 5), 0);
    // A sample may miss the short time at which the folder holds most, never the other way round: another run
    // is watched where it did.
    int64_t most = 0;
    for (int tries = 0; tries < 5 && planned > (1 + kPromised) * static_cast<double>(most); ++tries)
      most = std::max(most, most_bytes_of(command, out));
    EXPECT_NEAR(planned / static_cast<double>(most), 1, kPromised)
        << name << ": " << planned << " planned, " << most;
  }
};

TEST_F(DiskPlans, OfDiskAreClose) {
  const std::string often = "--train.steps 4 --checkpoint.every_steps 1 --eval.every_steps 1 ";
  // With this learning rate the first evaluation is the best: its state and model are kept to the end.
  expect_planned("float32", often + "--checkpoint.keep_last 1");
  expect_planned("bfloat16", often + "--checkpoint.keep_last 1 --model.dtype bfloat16");
  expect_planned("moments", often +
                                "--checkpoint.keep_last 1 --model.dtype bfloat16 "
                                "--train.optimizer.moments bfloat16 --train.master_weights false");
  expect_planned("last", "--train.steps 2 --checkpoint.every_steps 0");
  expect_planned("unjudged", "--train.steps 4 --checkpoint.every_steps 1 --eval.every_steps 0", "0");
}

}  // namespace
}  // namespace temper
