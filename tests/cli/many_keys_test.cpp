// Objects and lists with hundreds of thousands of members take seconds, and a screen of messages.
#include "base/clock.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

constexpr int kMembers = 200'000;

class ManyKeys : public Cli {
 protected:
  static std::string members(const std::string& form, int count = kMembers) {
    std::string out;
    for (int i = 0; i < count; ++i) {
      out += form;
      for (size_t at = out.size() - form.size(); (at = out.find('#', at)) != std::string::npos;)
        out.replace(at, 1, std::to_string(i));
    }
    return out;
  }

  // A copy of the model's folder with these members in one of its JSON objects.
  static std::string model_with(const std::string& name, const std::string& added) {
    const std::string copy = folder() + "/many";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder() + "/model", copy, std::filesystem::copy_options::recursive);
    std::string text = exists(copy + "/" + name) ? read_file(copy + "/" + name) : "{\"a\": null}";
    text.replace(text.rfind('}'), 1, added + "}");
    write_file(copy + "/" + name, text);
    return copy;
  }

  static void expect_quick(const std::string& command, int code, const std::string& said) {
    const double start = seconds_now();
    const Outcome outcome = run(command);
    EXPECT_LT(seconds_now() - start, 15) << command;
    EXPECT_EQ(outcome.code, code) << command << outcome.err.substr(0, 2000);
    EXPECT_NE((outcome.out + outcome.err).find(said), std::string::npos)
        << command << outcome.err.substr(0, 2000);
    EXPECT_LT(outcome.out.size() + outcome.err.size(), 20'000u) << command;
  }
};

TEST_F(ManyKeys, OfAModel) {
  const std::string numbers = members(", \"key_#\": 1"), ask = " -p x -n 1 -q";
  expect_quick("generate " + model_with("config.json", numbers) + ask, 0, " more\n");
  expect_quick("generate " + model_with("generation_config.json", numbers) + ask, 0,
               "199990 more keys are not");
  expect_quick("generate " + model_with("tokenizer_config.json", numbers) + ask, 0, "");
  expect_quick("generate " + model_with("tokenizer_config.json", members(", \"t#_token\": \"<#>\"")) + ask, 0,
               " more tokens without an id there is no room");
  expect_quick("generate " + model_with("added_tokens.json", members(", \"<#>\": 5#")) + ask, 2,
               "added_tokens.json");
}

TEST_F(ManyKeys, OfAConfiguration) {
  const std::string path = folder() + "/many.yaml", text = read_file(yaml());
  write_file(path, text + members("key_#: 1\n"));
  expect_quick("data inspect " + path, 2, "unknown key 'key_0'");
  write_file(path, text.substr(0, text.find("data:")) + "data:\n  train: [" +
                       members("no_#.jsonl, ", 20'000) + "]\n");
  expect_quick("data inspect " + path, 2, "[no_0.jsonl] no such file");
}

TEST_F(ManyKeys, OfARow) {
  const std::string path = folder() + "/many.jsonl", table = folder() + "/many.csv";
  const std::string inspect = "data inspect " + yaml() + " --summary --data.train ";
  const std::string numbers = members(", \"key_#\": 1");
  write_file(path, "{\"text\": \"a\"" + numbers + "}\n");
  expect_quick(inspect + path, 0, "kept 1 of 1 rows");
  write_file(path, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"" + numbers +
                       "}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  expect_quick(inspect + path, 0, "kept 1 of 1 rows");
  write_file(path, "{\"none\": \"a\"" + numbers + "}\n");
  expect_quick(inspect + path, 2, "and 199981 more");
  write_file(table, "text" + members(",c#") + "\na" + members(",1") + "\n");
  expect_quick(inspect + table, 0, "kept 1 of 1 rows");
}

}  // namespace
}  // namespace temper
