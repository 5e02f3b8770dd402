// The example plug-in, built by its own Makefile and used as a user would.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class Plugin : public Cli {
 protected:
  // The example's sources, changed by `edit` (a sed program), built in a folder of their own.
  static std::string build(const std::string& name, const std::string& edit = "") {
    const std::string place = folder() + "/" + name, example = TEMPER_SOURCE_DIR "/examples/plugin";
    const std::string commands = "mkdir -p " + place + " && sed '" + edit + "' " + example + "/toy.c > " +
                                 place + "/toy.c && make -s -C " + place + " -f " + example +
                                 "/Makefile CFLAGS=-O1 INCLUDE=" TEMPER_SOURCE_DIR "/include";
    EXPECT_EQ(std::system(commands.c_str()), 0);
    return place + "/libtoy.so";
  }
};

TEST_F(Plugin, BringsHardwareAndKernels) {
  const std::string plugin = build("toy");
  const std::string with = " --plugins [" + plugin + "] --device toy", out = folder() + "/on_toy";
  const Outcome outcome = run("train " + yaml() + with + " --train.steps 3 --output " + out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json kernels = Json::parse_file(out + "/kernels.json");
  EXPECT_EQ(kernels.at("hardware").as_string(), "toy");
  EXPECT_EQ(kernels.at("device").as_string(), "Toy accelerator");
  for (const Json& choice : kernels.at("choices").as_array()) {
    const std::string field = choice.at("field").as_string();
    const bool brought = field == "rms_norm_implementation" || field == "swiglu_mlp_implementation";
    EXPECT_EQ(choice.at("kernel").as_string(), brought ? "toy" : "eager") << field;
  }
  // The same numbers as without it, to float32 rounding.
  const std::string plain = folder() + "/on_cpu";
  ASSERT_EQ(run("train " + yaml() + " --train.steps 3 --output " + plain).code, 0);
  const auto loss = [](const std::string& run_folder) {
    return Json::parse_file(run_folder + "/summary.json").at("loss").as_double();
  };
  EXPECT_NEAR(loss(out), loss(plain), 1e-4 * loss(plain));
  // Gradients in bfloat16, which plug-ins know nothing of.
  const std::string narrow = folder() + "/narrow";
  ASSERT_EQ(
      run("train " + yaml() + with + " --train.steps 3 --train.gradients bfloat16 --output " + narrow).code,
      0);
  EXPECT_NEAR(loss(narrow), loss(plain), 1e-2 * loss(plain));
  // A run may change its device, and says what that means.
  const Outcome moved =
      run("train " + yaml() + " --plugins [" + plugin + "] --device cpu --train.steps 4 --output " + out);
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(moved.err.find("the run was on \"Toy accelerator\" before"), std::string::npos) << moved.err;
}

// A device that fails in the middle of a run: one error that says what is saved, and the run resumes from
// there.
TEST_F(Plugin, AFailureKeepsWhatWasSaved) {
  const std::string train = "train " + yaml() + " --device toy --output ";
  const std::string whole = folder() + "/unbroken", broken = folder() + "/broken";
  const std::string with = " --plugins [" + build("device") + "]";
  ASSERT_EQ(run(train + whole + with).code, 0);
  build("device", "s/int swiglu_forward(.*{/& static int calls; if (++calls > 20) return 7;/");
  const Outcome outcome = run(train + broken + with);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("the plug-in kernel 'toy' failed with code 7\nStep 5 is saved in " + broken +
                             ": run the same command to resume from it"),
            std::string::npos)
      << outcome.err;
  EXPECT_FALSE(exists(broken + "/model/model.safetensors"));
  build("device");
  const Outcome again = run(train + broken + with);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("after step 5"), std::string::npos) << again.err;
  EXPECT_EQ(losses(broken), losses(whole));
}

TEST_F(Plugin, ItsAllowListIsStrict) {
  const std::string with =
      "train " + yaml() + " --plugins [" + build("toy") + "] --output " + folder() + "/none";
  const std::string field = " --model.ops_implementation.rms_norm_implementation ";
  expect_refused(
      with + " --device toy" + field + "simd", 2,
      "rms_norm_implementation=simd is not supported on Toy accelerator. Set it to one of [eager, toy]");
  expect_refused(with + field + "toy", 2, "requires Toy accelerator but none is available");
  expect_refused(with + " --device toy --model.dtype bfloat16" + field + "toy", 2, "computes float32 only");
  expect_refused("train " + yaml() + " --device toy", 2, "[device] 'toy' is not known; use one of [cpu");
}

// What a kernel needs of the on-chip memory is compared with what the device has: both figures are shown.
TEST_F(Plugin, AKernelThatNeedsMoreOnChipMemoryThanThereIs) {
  const auto on_toy = [](const std::string& plugin) {
    return "train " + yaml() + " --plugins [" + plugin + "] --device toy --dry-run --output " + folder() +
           "/on_chip --model.ops_implementation.swiglu_mlp_implementation toy";
  };
  const Outcome fits = run(on_toy(build("fits")));
  EXPECT_EQ(fits.code, 0) << fits.err;
  expect_refused(on_toy(build("too_much", "s/return 3 [*] 32 [*] signature.i..value/return 1840384/")), 2,
                 "swiglu_mlp_implementation=toy cannot run: needs 1,840,384 bits, the on-chip memory has "
                 "1,572,864. Set it to one of [eager]");
  const Outcome negative =
      run(on_toy(build("negative", "s/return 3 [*] 32 [*] signature.i..value/return -5/")));
  EXPECT_EQ(negative.code, 1);
  EXPECT_NE(negative.err.find("the plug-in kernel 'toy' says that it needs -5 bits of on-chip memory"),
            std::string::npos)
      << negative.err;
}

TEST_F(Plugin, AreFoundInTheEnvironment) {
  const std::string place = build("toy").substr(0, folder().size() + 4);
  ::setenv("TEMPER_PLUGIN_PATH", place.c_str(), 1);
  const Outcome outcome = run("ops --device toy");
  ::unsetenv("TEMPER_PLUGIN_PATH");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Toy accelerator"), std::string::npos) << outcome.out;
}

TEST_F(Plugin, OneFileIsLoadedOnce) {
  const std::string file = build("toy"), place = folder() + "/toy/../toy";
  ::setenv("TEMPER_PLUGIN_PATH", (place + ":" + file).c_str(), 1);
  const Outcome outcome = run("train " + yaml() + " --plugins [" + file + "] --device toy --dry-run");
  ::unsetenv("TEMPER_PLUGIN_PATH");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(Plugin, AreVerifiedLikeAnyKernel) {
  const auto verify = [](const std::string& plugin) {
    ::setenv("TEMPER_PLUGIN_PATH", plugin.c_str(), 1);
    const Outcome outcome = run("ops --verify --device toy --op swiglu");
    ::unsetenv("TEMPER_PLUGIN_PATH");
    return outcome;
  };
  const Outcome right = verify(build("toy"));
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  const Outcome wrong = verify(build("wrong", "s/gate\\[i\\] \\* (1 - sigmoid)/gate[i]/"));
  EXPECT_EQ(wrong.code, 1) << wrong.out << wrong.err;
  EXPECT_NE(wrong.out.find("toy        WRONG"), std::string::npos) << wrong.out;
  const Outcome failing =
      verify(build("failing", "/^static int swiglu_backward/,/^}/s/return 0;/return 3;/"));
  EXPECT_EQ(failing.code, 1) << failing.out << failing.err;
  EXPECT_NE(failing.out.find("FAILED"), std::string::npos) << failing.out;
}

TEST_F(Plugin, WhatDoesNotFitIsRefused) {
  const auto refused = [](const std::string& plugin, const std::string& why) {
    expect_refused("train " + yaml() + " --plugins [" + plugin + "] --output " + folder() + "/none", 2, why);
  };
  refused(build("newer", "s/return TEMPER_PLUGIN_ABI/return TEMPER_PLUGIN_ABI + 1/"),
          "was made for plug-in ABI 2, this is ABI 1");
  refused(build("nameless", "s/uint32_t temper_plugin_abi/uint32_t another_abi/"),
          "is not a plug-in of Temper");
  refused(build("unknown_op", "s/{\"swiglu\", \"toy\"/{\"softmax\", \"toy\"/"),
          "op 'softmax' cannot come from a plug-in");
  refused(build("homeless", "s/{\"swiglu\", \"toy\", \"toy\"/{\"swiglu\", \"toy\", \"moon\"/"),
          "which no one has registered");
  refused(build("eager", "s/{\"swiglu\", \"toy\"/{\"swiglu\", \"eager\"/"),
          "'eager' is the composition's name");
  refused(build("nullname", "s/{\"rms_norm\", \"toy\", \"toy\"}, {/{\"rms_norm\", 0, \"toy\"}, {/"),
          "needs field, name and provider");
  refused(build("nonames", "s/.names = names/.names = 0/"), "has 2 names, but no list");
  make_directories(folder() + "/no_plugins");
  refused(folder() + "/no_plugins", "holds no plug-ins");
  refused(folder() + "/absent.so", "no such plug-in");
  write_file(folder() + "/text.so", "not a library");
  refused(folder() + "/text.so", "cannot be loaded");
}

}  // namespace
}  // namespace temper
