// A model's config.json as people edit it: what stops a run, and what does not.
#include <filesystem>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class ModelConfigCli : public Cli {
 protected:
  // A copy of the tiny model with some keys of its config.json set.
  static std::string copy_of_model(const std::string& name) {
    std::filesystem::copy(folder() + "/model", folder() + "/" + name);
    return folder() + "/" + name;
  }
  static void set(const std::string& model, const std::string& key, const Json& value) {
    Json config = Json::parse_file(model + "/config.json");
    config.set(key, value);
    write_file(model + "/config.json", config.dump(2));
  }
};

TEST_F(ModelConfigCli, HarmlessEditsDoNotStopAResume) {
  const std::string model = copy_of_model("edited"), out = folder() + "/resumed";
  set(model, "bos_token_id", 1000000);
  set(model, "eos_token_id", Json::Array{1000000, 2});
  const std::string command =
      "train " + yaml() + " --model.path " + model + " --output " + out + " --train.steps ";
  const Outcome first = run(command + "2");
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string warning = "config.json] eos_token_id has 1000000, but the tokens are 0 to";
  const size_t at = first.err.find(warning);
  ASSERT_NE(at, std::string::npos) << first.err;
  EXPECT_EQ(first.err.find(warning, at + 1), std::string::npos) << first.err;

  set(model, "transformers_version", "5.0.0");
  set(model, "bos_token_id", nullptr);
  set(model, "eos_token_id", 2);
  const Outcome second = run(command + "4");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.err.find("resuming " + out + " after step 2"), std::string::npos) << second.err;

  set(model, "rms_norm_eps", 1e-4);
  set(model, "eos_token_id", 3);
  expect_refused(command + "6", 2,
                 "started with another " + model + "/config.json (rms_norm_eps: 1e-06, now ");
  expect_refused(command + "6", 2, "eos_token_id: [2], now [3]); restore that, or choose another output");
}

TEST_F(ModelConfigCli, DropoutOfAttentionStopsTrainingAlone) {
  const std::string model = copy_of_model("dropping");
  set(model, "attention_dropout", 0.1);
  const Outcome answer = run("generate " + model + " -n 1 -p x");
  EXPECT_EQ(answer.code, 0) << answer.err;
  for (const char* flags : {"", " --dry-run"})
    expect_refused(
        "train " + yaml() + " --model.path " + model + " --output " + folder() + "/none" + flags, 2,
        "/config.json] attention_dropout is 0.1; dropout of attention is not supported in training, "
        "set it to 0.0 in this file");
}

}  // namespace
}  // namespace temper
