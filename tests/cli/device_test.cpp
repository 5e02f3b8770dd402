// Devices by name. On machines without a GPU: that the lack of one is said clearly.
#include "tests/cli/cli_fixture.h"
#include "tests/support/gpu.h"

namespace temper {
namespace {

class Devices : public Cli {};

TEST_F(Devices, MistakesAreInput) {
  const std::string train = "train " + yaml() + " --output " + folder() + "/none --device ";
  expect_refused(train + "gpu", 2, "[device] 'gpu' is not known; use one of [cpu, cuda]");
  expect_refused(train + "cuda:", 2, "[device] 'cuda:' has no number after the colon");
  expect_refused(train + "cuda:-1", 2, "write cuda or, for the second one, cuda:1");
  expect_refused(train + "cpu:1", 2, "there is one cpu");
  expect_refused("generate " + folder() + "/model -p x --device gpu", 2, "[device] 'gpu' is not known");
  expect_refused("ops --device gpu", 2, "[device] 'gpu' is not known");
  expect_refused("ops --device cpu --hardware cuda-sm90", 2, "give only one of them");
  expect_refused("ops --verify --hardware cuda-sm90", 2,
                 "kernels run only on this machine's devices; use --device");
}

TEST_F(Devices, AMissingGpuIsAMissingResource) {
  const std::string why = why_no_gpu();
  if (why.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_NE(why.find("device: cpu"), std::string::npos) << why;
  for (const std::string& command :
       {"train " + yaml() + " --output " + folder() + "/none", "train " + yaml() + " --dry-run",
        "generate " + folder() + "/model -p x", "chat " + folder() + "/model", std::string("ops")}) {
    expect_refused(command + " --device cuda", 4, why);
    expect_refused(command + " --device cuda:1", 4, why);
  }
  EXPECT_FALSE(exists(folder() + "/none"));
}

// A driver that is too old, that has no GPU, or that does not start: each is one sentence and exit code 4.
TEST_F(Devices, AnUnusableDriverSaysWhatToDo) {
  if (why_no_gpu().find("has no CUDA rooms") != std::string::npos) GTEST_SKIP() << why_no_gpu();
  struct Driver {
    int version, answer;
    const char* sentence;
  };
  for (const Driver& driver :
       {Driver{12040, 0, "supports CUDA 12.4, this build needs 1"},
        {99000, 100, "no NVIDIA GPU is visible; check CUDA_VISIBLE_DEVICES"},
        {99000, 803, "of different versions; restart the machine"},
        {99000, 802, "cannot be used: system not yet initialized (802); see nvidia-smi"}}) {
    const std::string place = fmt::format("{}/driver_{}_{}", folder(), driver.version, driver.answer);
    make_directories(place);
    const std::string build = fmt::format(
        "cc -shared -fPIC -DVERSION={} -DANSWER={} -Wl,-soname,libcuda.so.1 -o {}/libcuda.so.1 "
        "{}/tests/cli/fake_driver.c",
        driver.version, driver.answer, place, TEMPER_SOURCE_DIR);
    ASSERT_EQ(std::system(build.c_str()), 0);
    const char* before = std::getenv("LD_LIBRARY_PATH");
    const std::string kept = before == nullptr ? "" : before;
    ::setenv("LD_LIBRARY_PATH", (place + ":" + kept).c_str(), 1);
    const std::string out = folder() + "/no_driver";
    expect_refused("train " + yaml() + " --device cuda --output " + out, 4, driver.sentence);
    expect_refused("generate " + folder() + "/model -p x --device cuda", 4, "device: cpu");
    EXPECT_EQ(run("doctor").code, 0);
    EXPECT_FALSE(exists(out));
    before == nullptr ? ::unsetenv("LD_LIBRARY_PATH") : ::setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
  }
}

TEST_F(Devices, AGpuThatIsNotThereIsAMissingResource) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  expect_refused("ops --device cuda:99", 4, "[device] there is no cuda:99; this machine has");
}

TEST_F(Devices, TheDoctorNeverFails) {
  const Outcome outcome = run("doctor");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\ngpu "), std::string::npos) << outcome.out;
}

TEST_F(Devices, TheExampleIsAConfiguration) {
  expect_refused("train " TEMPER_SOURCE_DIR "/examples/qwen3_gpu/run.yaml --device cpu --model.path " +
                     folder() + "/nowhere",
                 2, "[model.path] '" + folder() + "/nowhere' is not a folder");
}

// A GPU's run, its generation and its evaluation, where there is one.
TEST_F(Devices, AGpuTrainsAndAnswers) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string out = folder() + "/on_gpu";
  const std::string train = "train " + yaml() + " --device cuda:0 --output " + out + " --data.eval [" +
                            folder() + "/eval.jsonl] --eval.exact_match 4 --train.steps ";
  const Outcome outcome = run(train + "6");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json summary = Json::parse_file(out + "/summary.json");
  EXPECT_EQ(summary.at("device").as_string(), "cuda:0");
  EXPECT_GT(summary.at("peak_memory_bytes").as_int(), 0);
  EXPECT_EQ(Json::parse_file(out + "/kernels.json").at("hardware").as_string(), "gpu");
  ASSERT_EQ(run(train + "12").code, 0);
  EXPECT_EQ(losses(out).size(), 12u);
  const std::string ask = " " + out + "/model -p 'What is 10 + 10?' -n 4 --greedy -q";
  const Outcome there = run("generate --device cuda" + ask);
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_EQ(run("ops --device cuda").code, 0);
  EXPECT_EQ(run("ops --verify --device cuda").code, 0);
}

// What was saved on the way is what an uninterrupted run has.
TEST_F(Devices, AGpusRunContinuesBitForBit) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string train = "train " + yaml() +
                            " --device cuda --model.dtype bfloat16 --train.schedule.type constant --output " +
                            folder();
  ASSERT_EQ(run(train + "/gpu_whole").code, 0);
  ASSERT_EQ(run(train + "/gpu_parts --train.steps 5").code, 0);
  ASSERT_EQ(run(train + "/gpu_parts").code, 0);
  EXPECT_EQ(read_file(folder() + "/gpu_parts/model/model.safetensors"),
            read_file(folder() + "/gpu_whole/model/model.safetensors"));
}

// The scales of inputs and weights are found there, too, and a checkpoint has them.
TEST_F(Devices, AGpusQuantizedRunContinuesBitForBit) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string train =
      "train " + yaml() +
      " --device cuda --model.dtype bfloat16 --train.schedule.type constant --quantize.preset ";
  for (const char* preset : {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4"}) {
    const std::string whole = fmt::format("{}/{}_whole", folder(), preset),
                      parts = fmt::format("{}/{}_parts", folder(), preset);
    const Outcome outcome = run(fmt::format("{}{} --output {}", train, preset, whole));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_EQ(run(fmt::format("{}{} --train.steps 5 --output {}", train, preset, parts)).code, 0);
    ASSERT_EQ(run(fmt::format("{}{} --output {}", train, preset, parts)).code, 0);
    EXPECT_EQ(read_file(parts + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
  }
}

// An illegal address in the middle of a run is a defect: one sentence, and the run resumes from its
// checkpoint bit for bit.
TEST_F(Devices, AnIllegalAddressLosesNothingThatWasSaved) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string out = folder() + "/lost", library = folder() + "/lost_gpu.so";
  const std::string build = fmt::format(
      "cc -shared -fPIC -DAWAITED='\"{}/checkpoints/step-000010/manifest.json\"' -o {} {}/tests/cli/"
      "lost_gpu.c -lpthread -ldl",
      out, library, TEMPER_SOURCE_DIR);
  ASSERT_EQ(std::system(build.c_str()), 0);
  const std::string train = "train " + yaml() + " --device cuda --train.schedule.type constant --output ";
  ::setenv("CUDA_INJECTION64_PATH", library.c_str(), 1);
  const Outcome lost = run(train + out + " --train.steps 100000");
  ::unsetenv("CUDA_INJECTION64_PATH");
  EXPECT_EQ(lost.code, 1) << lost.err;
  const size_t at = lost.err.find("a defect of Temper, please report it");
  EXPECT_NE(at, std::string::npos) << lost.err;
  EXPECT_EQ(lost.err.find("a defect of Temper", at + 1), std::string::npos) << lost.err;
  EXPECT_EQ(lost.err.find("not captured in CUDA graphs any more"), std::string::npos) << lost.err;
  const auto steps = static_cast<int64_t>(losses(out).size()) + 5;
  ASSERT_EQ(run(fmt::format("{}{} --train.steps {}", train, out, steps)).code, 0);
  ASSERT_EQ(run(fmt::format("{}{}/whole --train.steps {}", train, folder(), steps)).code, 0);
  EXPECT_EQ(read_file(out + "/model/model.safetensors"),
            read_file(folder() + "/whole/model/model.safetensors"));
}

TEST_F(Devices, ATooSmallGpuBudgetSaysWhatToChange) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  expect_refused("train " + yaml() + " --device cuda --memory_limit_mib 1 --output " + folder() + "/small", 4,
                 "[memory]");
}

// What was timed belongs to the run: it resumes bit for bit where the shared cache is gone, or says
// otherwise.
TEST_F(Devices, AlgorithmsOfARunAreItsOwn) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::string cache = folder() + "/timed", whole = folder() + "/timed_whole",
                    parts = folder() + "/timed_parts";
  const std::string command =
      "train " + yaml() +
      " --device cuda --data.max_length 512 --train.rows_per_step 32 --train.schedule.type "
      "constant --checkpoint.every_steps 0 --output ";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  ASSERT_EQ(run(command + whole + " --train.steps 6").code, 0);
  ASSERT_EQ(run(command + parts + " --train.steps 3").code, 0);
  const Json timed = Json::parse_file(parts + "/algorithms.json");
  ASSERT_EQ(timed.as_object().size(), 1u);
  EXPECT_FALSE(timed.as_object().front().second.as_object().empty());
  remove_all(cache);
  const Outcome again = run(command + parts + " --train.steps 6");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(again.err.find("last bits"), std::string::npos) << again.err;
  for (const auto& [shape, words] : timed.as_object().front().second.as_object())
    EXPECT_EQ(Json::parse_file(parts + "/algorithms.json").as_object().front().second.at(shape), words);
  // As if it had been timed elsewhere.
  write_file(parts + "/algorithms.json",
             Json(Json::Object{{"another GPU", timed.as_object().front().second}}).dump());
  const Outcome moved = run(command + parts + " --train.steps 7");
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(moved.err.find("last bits from now on: its matrix multiplications were timed on another GPU"),
            std::string::npos)
      << moved.err;
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace temper
