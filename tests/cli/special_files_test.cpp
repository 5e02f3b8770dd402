// Pipes, devices and folders where files are expected, controls in names, and models that no disk should
// have.
#include <sys/stat.h>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class SpecialFiles : public Cli {
 protected:
  // A copy of the model's folder without one of its files, whose path is returned.
  static std::string model_without(const std::string& name) {
    const std::string copy = folder() + "/special";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder() + "/model", copy, std::filesystem::copy_options::recursive);
    std::filesystem::remove(join_path(copy, name));
    return join_path(copy, name);
  }

  // The command ends by itself, with an error that names the file, whatever stands in its place.
  static void expect_refused_in_place(const std::string& path, const std::string& command) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_refused(command, 2, "[" + path + "] is a pipe");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    expect_refused(command, 2, "[" + path + "] is a device, expected a file");
    std::filesystem::remove(path);
  }
};

TEST_F(SpecialFiles, OfAModel) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                           "model.safetensors", "chat_template.jinja", "special_tokens_map.json"})
    expect_refused_in_place(model_without(name), "generate " + folder() + "/special -p x -n 1");
  make_directories(model_without("config.json"));
  expect_refused("generate " + folder() + "/special -p x", 2, "/config.json] is a folder, expected a file");
  model_without("no such file");
  make_directories(folder() + "/special/additional_chat_templates");
  expect_refused_in_place(folder() + "/special/additional_chat_templates/x.jinja",
                          "generate " + folder() + "/special -p x -n 1");
}

TEST_F(SpecialFiles, OfAnAdapter) {
  const std::string adapter = folder() + "/special_adapter", model = folder() + "/model";
  make_directories(adapter);
  expect_refused_in_place(adapter + "/adapter_config.json",
                          "generate " + model + " -p x --adapter " + adapter);
  write_file(adapter + "/adapter_config.json",
             R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]})");
  expect_refused_in_place(adapter + "/adapter_model.safetensors",
                          "generate " + model + " -p x --adapter " + adapter);
}

TEST_F(SpecialFiles, OfDataAndTemplates) {
  const std::string data = folder() + "/special.jsonl", text = folder() + "/special.jinja";
  expect_refused_in_place(text, "data inspect " + yaml() + " --data.chat_template " + text);
  ASSERT_EQ(::mkfifo(data.c_str(), 0600), 0);
  for (const std::string& command :
       {"data inspect " + yaml() + " --data.train " + data,
        "batch " + folder() + "/model " + data + " --out " + folder() + "/answers.jsonl"})
    expect_refused(command, 2,
                   "[" + data + "] is a pipe, expected a file; a file can be read more than once");
  expect_refused("generate " + folder() + "/model --prompt-file " + data, 2, "is a pipe in a folder");
  const std::string config = folder() + "/special.yaml";
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  expect_refused("train " + config, 2, "[" + config + "] is a pipe in a folder");
}

// What a shell puts in a file's place is read where reading once is enough.
TEST_F(SpecialFiles, PipesOfTheShell) {
  const Outcome piped = run("generate " + folder() + "/model -p x -n 2 --greedy -q");
  const auto shell = [](const std::string& command) {
    return std::system(("bash -c '" + command + "' >" + folder() + "/shell.out 2>&1").c_str());
  };
  const std::string temper = TEMPER_BINARY;
  EXPECT_EQ(shell(temper + " generate " + folder() + "/model --prompt-file <(printf x) -n 2 --greedy -q"), 0);
  EXPECT_EQ(read_file(folder() + "/shell.out"), piped.out);
  EXPECT_EQ(shell("cat " + yaml() + " | " + temper + " data inspect /dev/stdin --summary"), 0)
      << read_file(folder() + "/shell.out");
}

// A name may be anything, and what a terminal shows of it is plain text.
TEST_F(SpecialFiles, ControlsInNamesAreSpelledOut) {
  const std::string name = folder() +
                           "/a\x1b]0;title\x07\xc2\x9b"
                           "1m.jsonl";
  const Outcome missing = run("data inspect " + yaml() + " --data.train \"" + name + "\"");
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("/a\\x1b]0;title\\x07\\u009b1m.jsonl]"), std::string::npos) << missing.err;
  EXPECT_EQ(missing.err.find('\x1b'), std::string::npos);
  write_file(name, "{\"question\": \"\\u001b[2J\\u202e\", \"answer\": \"\\u009b31m\", \"k\\u001b[1m\": 1}\n");
  const Outcome inspected = run("data inspect " + yaml() + " --data.train \"" + name + "\"");
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  for (const std::string& text : {inspected.out, inspected.err})
    for (const char* bad : {"\x1b", "\x07", "\xc2\x9b", "\xe2\x80\xae"})
      EXPECT_EQ(text.find(bad), std::string::npos) << text;
  EXPECT_NE(inspected.out.find("k\\x1b[1m"), std::string::npos) << inspected.out;
}

}  // namespace
}  // namespace temper
