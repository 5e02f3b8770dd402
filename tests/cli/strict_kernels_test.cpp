// What a build leaves out, and runs that ask for the best kernels: on a processor, whose kernels a whole
// build has.
#include "base/parts/rooms.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class StrictKernels : public Cli {};

TEST_F(StrictKernels, EveryCommandThatLoadsAModelTakesTheFlag) {
  const std::string model = folder() + "/model", rows = folder() + "/asked.jsonl";
  write_file(rows, "{\"prompt\": \"1\"}\n");
  const bool whole = is_built("backends", "onednn") && is_built("backends", "simd");
  const std::string eval = "eval --model.path " + model + " --data.eval " + folder() + "/eval.jsonl";
  for (const std::string& command :
       {"train " + yaml() + " --train.steps 1 --output " + folder() + "/strict", eval,
        "generate " + model + " -p 1 -n 1", "chat " + model + " -n 1",
        "batch " + model + " " + rows + " --out " + folder() + "/answers.jsonl -n 1", "ops " + model,
        std::string("ops"), "ops " + yaml()}) {
    const Outcome outcome = run(command + " --strict-kernels");
    EXPECT_EQ(outcome.code, whole ? 0 : 2) << command << "\n" << outcome.err;
    if (!whole) {
      EXPECT_NE(outcome.err.find("[model.strict_kernels] "), std::string::npos) << outcome.err;
    }
  }
  // As a key of a run alone.
  EXPECT_EQ(run("ops " + yaml() + " --model.strict_kernels true").code, whole ? 0 : 2);
  for (const char* other : {"--table", "--suggest", "--verify"})
    expect_refused(fmt::format("ops {} --strict-kernels", other), 2,
                   "[--strict-kernels] is about the kernels that are chosen; leave it out with --table");
  expect_refused("ops " + model + " --strict-kernels --strict-kernels", 2, "--strict-kernels is given twice");
}

TEST_F(StrictKernels, TheDoctorNamesWhatTheBuildLeftOut) {
  const std::string out = run("doctor").out;
  const std::vector<std::string> left_out = left_out_lines(rooms_of_build());
  for (const std::string& line : left_out)
    EXPECT_NE(out.find("left out    " + line + "\n"), std::string::npos) << line << "\n" << out;
  EXPECT_EQ(out.find("left out    ") == std::string::npos, left_out.empty()) << out;
  // The build's own list, of a line for each room.
  const std::string file = (std::filesystem::path(TEMPER_BINARY).parent_path() / "left_out.txt").string();
  if (!exists(file)) return;
  for (const Room& room : rooms_of_build())
    EXPECT_EQ(read_file(file).find(fmt::format("{}/{}: ", room.kind, room.name)) != std::string::npos,
              !room.left_out.empty())
        << room.name;
}

// A folder of a model may have a config.yaml of the program that trained it.
TEST_F(StrictKernels, AModelsFolderIsNoRun) {
  const std::string model = folder() + "/published";
  std::filesystem::copy(folder() + "/model", model, std::filesystem::copy_options::recursive);
  write_file(model + "/config.yaml", "run_name: another program\n");
  const Outcome outcome = run("ops " + model);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("model     " + model), std::string::npos) << outcome.out;
  expect_refused("train " + model, 2, "is a folder, expected a run's YAML file; write --model.path");
}

// The block is for the model's family: this one rotates pairs, which the kernel of GPUs does not.
TEST_F(StrictKernels, ASuggestedBlockIsForTheModel) {
  const std::string family = folder() + "/family",
                    line = "    rotary_pos_emb_implementation: ", ask = " --hardware cuda-sm90 --suggest";
  make_directories(family);
  write_file(family + "/config.json", "{\"model_type\": \"wan\"}");
  const Outcome of_family = run("ops " + family + ask), of_all = run("ops " + folder() + "/model" + ask);
  EXPECT_EQ(of_family.code, 0) << of_family.err;
  EXPECT_NE(of_family.out.find(", wan\n"), std::string::npos) << of_family.out;
  EXPECT_NE(of_family.out.find(line + "eager\n"), std::string::npos) << of_family.out;
  EXPECT_NE(of_all.out.find(line + (is_built("backends", "cuda") ? "cuda\n" : "eager\n")), std::string::npos)
      << of_all.out;
  write_file(family + "/config.json", "{\"model_type\": \"deepseek_v3\"}");
  const Outcome latent = run("ops " + family + " --hardware ascend-910b --suggest");
  EXPECT_NE(latent.out.find(", deepseek_v3\n"), std::string::npos) << latent.out;
  EXPECT_NE(latent.out.find("    rms_norm_implementation: eager\n"), std::string::npos) << latent.out;
}

}  // namespace
}  // namespace temper
