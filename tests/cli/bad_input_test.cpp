// What a user gets for files that are broken, and that nothing which was saved is lost.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class BadInput : public Cli {
 protected:
  // A copy of the model folder with one file replaced by what `change` makes of its text.
  template <class F>
  static std::string model_with(const std::string& name, F&& change) {
    const std::string copy = folder() + "/changed";
    make_directories(copy);
    for (const std::string& file : list_directory(copy)) std::remove((copy + "/" + file).c_str());
    for (const std::string& file : list_directory(folder() + "/model"))
      write_file(copy + "/" + file, read_file(folder() + "/model/" + file));
    write_file(copy + "/" + name, change(exists(copy + "/" + name) ? read_file(copy + "/" + name) : ""));
    return copy;
  }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }

  static std::string train_from(const std::string& model) {
    return "train " + yaml() + " --model.path " + model + " --output " + folder() + "/from_changed";
  }
};

TEST_F(BadInput, MistypedArgumentsAndRows) {
  expect_refused("train " + yaml() + " --train.optimizer.lerning_rate 1", 2, "train.optimizer.");
  expect_refused("train " + folder() + "/none.yaml", 2, "none.yaml");
  expect_refused("train " + yaml() + " --model.path " + folder() + "/nowhere --output " + folder() + "/x", 2,
                 "nowhere");
  expect_refused("train " + yaml() + " --data.train [" + folder() + "/never_written.jsonl]", 2,
                 "never_written.jsonl");
  expect_refused("train " + yaml() + " --memory_limit_mib 1 --output " + folder() + "/x", 4, "[memory]");
  expect_refused(
      "train " + yaml() + " --model.ops_implementation.attn_implementation magic --output " + folder() + "/x",
      2, "is not a registered backend");
  expect_refused("generate " + folder() + "/model", 2, "--prompt");
  expect_refused("generate " + folder() + "/model -p x --top-p 7", 2, "--top-p");
  expect_refused("generate " + folder() + "/model -p x --min-p 1.01", 2,
                 "[--min-p] 1.01 is out of range; expected 0 to 1");
  write_file(folder() + "/bad.jsonl",
             read_file(folder() + "/eval.jsonl").substr(0, 200) + "\n{\"question\": 1}\n");
  expect_refused("train " + yaml() + " --data.train [" + folder() + "/bad.jsonl] --output " + folder() + "/x",
                 2, "bad.jsonl:");
}

TEST_F(BadInput, TruncatedFiles) {
  for (const char* name : {"model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"}) {
    const std::string model =
        model_with(name, [](const std::string& text) { return text.substr(0, text.size() - 100); });
    expect_refused("generate " + model + " -p x", 2, std::string("changed/") + name);
  }
}

TEST_F(BadInput, WeightsOfAnotherShapeOrDType) {
  const auto wider = [](const std::string& text) {
    return replaced(text, R"("vocab_size": 320)", R"("vocab_size": 400)");
  };
  expect_refused("generate " + model_with("config.json", wider) + " -p x", 2,
                 "'model.embed_tokens.weight' is [320, 128], expected [400, 128]");
  const auto integers = [](const std::string& text) { return replaced(text, R"("F32")", R"("I32")"); };
  expect_refused("generate " + model_with("model.safetensors", integers) + " -p x", 2,
                 "'model.embed_tokens.weight' is I32, expected F32, BF16 or F16");
}

TEST_F(BadInput, TemplateErrorsHaveTheirLine) {
  const std::string broken = model_with("chat_template.jinja", [](const std::string&) {
    return "{% for m in messages %}\n{{ m.content }\n{% endfor %}";
  });
  expect_refused(train_from(broken), 2, "chat_template.jinja:2] unexpected '}'");
  const std::string refusing = model_with("chat_template.jinja", [](const std::string&) {
    return "{% for m in messages %}\n\n{{ raise_exception('no ' + m.role) }}{% endfor %}";
  });
  const Outcome outcome = run(train_from(refusing));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("chat_template.jinja:3] no user"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("train.jsonl:"), std::string::npos) << outcome.err;
}

TEST_F(BadInput, AFullDiskLosesNothingThatWasSaved) {
  const std::string out = folder() + "/full";
  ASSERT_EQ(run("train " + yaml() + " --output " + out + " --train.steps 5").code, 0);
  const std::string manifest = read_file(out + "/checkpoints/step-000005/manifest.json");
  // Files may not grow beyond a limit that a checkpoint of this model exceeds.
  const TemporaryDirectory files;
  const std::string command = "trap '' XFSZ; ulimit -f 60; " TEMPER_BINARY " train " + yaml() + " --output " +
                              out + " --train.steps 12 2>" + (files / "err");
  const int status = std::system(command.c_str());
  const std::string said = read_file(files / "err");
  EXPECT_EQ(WEXITSTATUS(status), 4) << said;
  EXPECT_NE(said.find("cannot write: File too large; free some space"), std::string::npos) << said;
  const std::string console = read_file(out + "/console.log");
  EXPECT_LT(console.rfind("\nstep 10/12  "), console.rfind("\ntemper: [")) << console;
  EXPECT_EQ(read_file(out + "/checkpoints/step-000005/manifest.json"), manifest);
  EXPECT_EQ(list_directory(out + "/checkpoints"), std::vector<std::string>{"step-000005"});
  const Outcome again = run("train " + yaml() + " --output " + out + " --train.steps 12");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(losses(out).size(), 12u);
}

TEST_F(BadInput, ACorruptCheckpointIsPassedOver) {
  const std::string whole = folder() + "/whole_run", out = folder() + "/corrupt";
  ASSERT_EQ(run("train " + yaml() + " --output " + whole).code, 0);
  ASSERT_EQ(run("train " + yaml() + " --output " + out).code, 0);
  const std::string newest = out + "/checkpoints/step-000012/optimizer.safetensors";
  std::string bytes = read_file(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(newest, bytes);
  const Outcome outcome = run("train " + yaml() + " --output " + out);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step-000012"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("step 10"), std::string::npos) << outcome.err;
  EXPECT_EQ(losses(out), losses(whole));
  EXPECT_EQ(read_file(out + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
}

}  // namespace
}  // namespace temper
