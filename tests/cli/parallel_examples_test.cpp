// Each example of examples/parallel trains on its 8 ranks, which are processes, what one rank trains.
#include <filesystem>

#include "tests/cli/ranks_fixture.h"

namespace temper {
namespace {

class ParallelExamples : public RanksOfARun {
 protected:
  // Made as the example's README says.
  static void make(const std::string& source, const std::string& model) {
    if (exists(folder() + "/" + model)) return;
    const Outcome made = run("init " + folder() + "/" + source + " " + folder() + "/" + model);
    ASSERT_EQ(made.code, 0) << made.err;
  }
  // On its ranks, or without its group `parallel` on one.
  static std::string trained(const std::string& name, bool alone) {
    std::string text = read_file(TEMPER_SOURCE_DIR "/examples/parallel/" + name + "/run.yaml");
    for (size_t at; (at = text.find("build/demo")) != std::string::npos;) text.replace(at, 10, folder());
    const size_t group = text.find("\nparallel:"), next = text.find("\ndata:");
    EXPECT_LT(group, next);
    if (alone) text.erase(group, next - group);
    const std::string path = folder() + "/" + name + ".yaml",
                      out = fmt::format("{}/{}{}", folder(), name, alone ? "_alone" : "");
    write_file(path, text);
    const Outcome outcome = run("train " + path + " --output " + out +
                                " --train.steps 4 --data.max_length 128" + (alone ? "" : " --ranks 8"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out;
  }
};

TEST_F(ParallelExamples, TrainWhatOneRankTrains) {
  make("qwen3-hybrid-tiny", "hybrid");
  make("qwen3-moe-tiny", "moe");
  make("qwen3-tiny", "model");
  size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TEMPER_SOURCE_DIR "/examples/parallel")) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    ++examples;
    expect_same_course(trained(name, false), trained(name, true));
  }
  EXPECT_GE(examples, 4u);
}

}  // namespace
}  // namespace temper
