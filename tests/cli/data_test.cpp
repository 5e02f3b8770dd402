// Data of several kinds and files, as a user gives them.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class DataCli : public Cli {
 protected:
  // Ten additions as instructions, with a bad line behind the first `good` ones if that is not 0.
  static std::string instructions(const std::string& name, int good = 0) {
    std::string text;
    for (int i = 0; i < 10; ++i) {
      if (good > 0 && i == good) text += "{\"instruction\": 3, \"output\": \"x\"}\n";
      text += fmt::format("{{\"instruction\": \"What is {} + 1?\", \"output\": \"{}\"}}\n", i, i + 1);
    }
    write_file(folder() + "/" + name, text);
    return folder() + "/" + name;
  }
};

TEST_F(DataCli, SourcesAreMixedAndTheirLossesReported) {
  const std::string one = instructions("one.jsonl");
  write_file(folder() + "/mix.yaml",
             "output: " + folder() + "/mix\nmodel: {path: " + folder() + "/model}\ndata:\n  train:\n    - " +
                 folder() + "/train.jsonl\n    - {path: " + one +
                 ", name: instructions, weight: 3}\n  mixing: first_exhausted\n  eval_fraction: 0.2\n"
                 "  max_length: 64\ntrain: {steps: 6, tokens_per_step: 300}\n");
  const Outcome trained = run("train " + folder() + "/mix.yaml");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("rows of messages; instructions: 8 rows of alpaca"), std::string::npos)
      << trained.err;
  const std::vector<Json> lines = metrics(folder() + "/mix");
  ASSERT_EQ(lines.size(), 7u);
  for (const Json& line : lines) {
    const bool step = line.find("loss") != nullptr;
    const Json& sources = line.at(step ? "loss_by_source" : "eval_loss_by_source");
    for (const char* name : {"train.jsonl", "instructions"}) EXPECT_GT(sources.at(name).as_double(), 0);
    EXPECT_TRUE(!step || line.at("data_wait_seconds").as_double() >= 0);
  }
  expect_refused("train " + folder() + "/mix.yaml --data.mixing concatenate", 2, "has a weight of 3");
  const Outcome held = run("data inspect " + folder() + "/mix.yaml --eval --summary");
  EXPECT_NE(held.out.find("instructions: kept 2 of 2 rows"), std::string::npos) << held.out;
}

TEST_F(DataCli, SourcesHaveNamesOfTheirOwn) {
  const std::string one = instructions("twice.jsonl");
  const Outcome outcome =
      run("train " + yaml() + " --output " + folder() + "/twice --train.steps 2 --data.train [" + one + "," +
          one + "," + one + "] --data.threads 3");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json sources = metrics(folder() + "/twice").at(0).at("loss_by_source");
  EXPECT_LE(sources.as_object().size(), 3u);
  EXPECT_NE(outcome.err.find("twice.jsonl#2: 10 rows"), std::string::npos) << outcome.err;
  expect_refused("train " + yaml() + " --data.threads 200000", 2, "data.threads");
  expect_refused("train " + yaml() + " --data.eval [" + folder() + "/no.jsonl]", 2, "no.jsonl");
}

TEST_F(DataCli, AFileThatMovedIsTheSameData) {
  const std::string file = instructions("before.jsonl"), out = folder() + "/moved";
  const std::string command = "train " + yaml() + " --output " + out + " --data.train [";
  ASSERT_EQ(run(command + file + "] --train.steps 4").code, 0);
  const std::string other = folder() + "/after.jsonl";
  rename_path(file, other);
  const Outcome resumed = run(command + other + "] --train.steps 6");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resuming"), std::string::npos);
  write_file(other, read_file(other) + "{\"text\": \"more\"}\n");
  expect_refused(command + other + "] --train.steps 8", 2, "cannot resume with other data");
}

TEST_F(DataCli, ARowThatStopsARunLosesNothing) {
  const std::string bad = instructions("bad_later.jsonl", 9);
  const std::string command = "train " + yaml() + " --output " + folder() + "/stopped --data.train [" + bad +
                              "] --data.shuffle false --data.packing none --train.rows_per_step 4";
  const Outcome stopped = run(command);
  EXPECT_EQ(stopped.code, 2);
  EXPECT_NE(stopped.err.find("bad_later.jsonl:10] instruction must be a string"), std::string::npos)
      << stopped.err;
  EXPECT_NE(stopped.err.find("the 2 steps before it are saved"), std::string::npos) << stopped.err;
  const Outcome resumed = run(command + " --data.on_bad_row skip");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resuming"), std::string::npos);
  const Outcome whole =
      run("train " + yaml() + " --output " + folder() + "/skipping --data.train [" + bad +
          "] --data.shuffle false --data.packing none --train.rows_per_step 4 --data.on_bad_row skip");
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(losses(folder() + "/stopped"), losses(folder() + "/skipping"));
}

// The template that a model was trained with goes with it.
TEST_F(DataCli, AnotherChatTemplateMayBeChosen) {
  const std::string rows = folder() + "/two_turns.jsonl", shouted = folder() + "/shouted.jinja";
  write_file(rows, R"({"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
    {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})");
  write_file(shouted,
             "{% for m in messages %}{{ m.role }}! {{ m.content }}<|im_end|>{% endfor %}"
             "{% if add_generation_prompt %}assistant! {% endif %}");
  const std::string set = yaml() + " --data.train [" + rows + "] --data.chat_template " + shouted;
  const Outcome all = run("data inspect " + set);
  EXPECT_NE(all.out.find("[[2|<|im_end|>|]]"), std::string::npos) << all.out << all.err;
  const Outcome last = run("data inspect " + set + " --data.loss last_turn");
  EXPECT_EQ(last.out.find("[[2"), std::string::npos) << last.out << last.err;
  EXPECT_NE(last.out.find("[[4|<|im_end|>|]]"), std::string::npos) << last.out << last.err;
  const std::string out = folder() + "/shouted";
  ASSERT_EQ(run("train " + set + " --train.steps 1 --output " + out).code, 0);
  EXPECT_EQ(read_file(out + "/model/chat_template.jinja"), read_file(shouted));
  expect_refused("data inspect " + yaml() + " --data.chat_template nope", 2, "'nope' is not a file");
}

// Rows with tools take the model's template for them, and a saved folder has all templates.
TEST_F(DataCli, NamedTemplatesAreUsedAndSaved) {
  const std::string model = folder() + "/named", named = model + "/additional_chat_templates";
  std::filesystem::copy(folder() + "/model", model, std::filesystem::copy_options::recursive);
  const auto template_with = [](const std::string& first) {
    return first +
           "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
           "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
  };
  write_file(model + "/chat_template.jinja", template_with(""));
  make_directories(named);
  write_file(named + "/tool_use.jinja", template_with("TOOLS:{{ tools | tojson }}"));
  write_file(named + "/rag.jinja", "rag");
  const std::string
      chat = R"("messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}])",
      rows = folder() + "/tools.jsonl";
  write_file(rows, "{" + chat + "}\n{" + chat + R"(, "tools": [{"function": {"name": "LOOKUP"}}]})" + "\n");
  const std::string set = yaml() + " --model.path " + model + " --data.train [" + rows + "]";
  const Outcome seen = run("data inspect " + set);
  std::string shown = seen.out;
  std::erase(shown, '|');
  EXPECT_EQ(seen.code, 0) << seen.err;
  EXPECT_NE(shown.find("TOOLS:[{"), std::string::npos) << seen.out;
  EXPECT_EQ(shown.find("TOOLS:"), shown.rfind("TOOLS:")) << seen.out;
  const std::string reported = "conversations with tools take the chat template 'tool_use', others 'default'";
  EXPECT_NE(seen.err.find(reported), std::string::npos) << seen.err;
  const std::string out = folder() + "/named_run";
  ASSERT_EQ(run("train " + set + " --train.steps 1 --output " + out).code, 0);
  for (const char* file : {"chat_template.jinja", "additional_chat_templates/tool_use.jinja",
                           "additional_chat_templates/rag.jinja"})
    EXPECT_EQ(read_file(out + "/model/" + file), read_file(model + "/" + file));
  EXPECT_NE(run("generate " + out + "/model -p 1 -n 1").err.find(reported), std::string::npos);
  // The list that transformers 4 wrote stays one.
  const std::string listed = folder() + "/listed";
  std::filesystem::copy(folder() + "/model", listed, std::filesystem::copy_options::recursive);
  std::filesystem::remove(listed + "/chat_template.jinja");
  Json settings = Json::parse_file(listed + "/tokenizer_config.json");
  settings.set("chat_template",
               Json::Array{Json::Object{{"name", "default"}, {"template", template_with("")}},
                           Json::Object{{"name", "tool_use"}, {"template", template_with("TOOLS:")}}});
  write_file(listed + "/tokenizer_config.json", settings.dump());
  const Outcome trained = run("train " + yaml() + " --data.train [" + rows + "] --model.path " + listed +
                              " --train.steps 1 --output " + listed + "_run");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_file(listed + "_run/model/tokenizer_config.json"), settings.dump());
  EXPECT_FALSE(exists(listed + "_run/model/chat_template.jinja"));
  EXPECT_NE(run("generate " + listed + "_run/model -p 1 -n 1").err.find(reported), std::string::npos);
  // One that is chosen is that of all rows, in the saved folder, too.
  const Outcome chosen = run("train " + set + " --train.steps 1 --data.chat_template " + named +
                             "/tool_use.jinja --output " + out + "2");
  ASSERT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_EQ(read_file(out + "2/model/chat_template.jinja"), read_file(named + "/tool_use.jinja"));
  EXPECT_FALSE(exists(out + "2/model/additional_chat_templates/tool_use.jinja"));
  EXPECT_TRUE(exists(out + "2/model/additional_chat_templates/rag.jinja"));
  EXPECT_NE(chosen.err.find("chat template for tools is left out"), std::string::npos) << chosen.err;
}

// Each with the first row that has it, in every command.
TEST_F(DataCli, WhatATemplateLeavesOutIsReported) {
  const std::string sparing = folder() + "/sparing.jinja";
  write_file(
      sparing,
      "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}");
  const std::string system = R"({"role": "system", "content": "Be brief."}, )",
                    user = R"({"role": "user", "content": "1"})",
                    answer = R"({"role": "assistant", "content": "2"})", rows = folder() + "/lossy.jsonl";
  write_file(rows, "{\"messages\": [" + user + ", " + answer + "]}\n{\"messages\": [" + system + user + ", " +
                       answer + "]}\n{\"messages\": [" + system + R"({"role": "usr", "content": "1"}, )" +
                       answer + "]}\n");
  const std::string set = yaml() + " --data.train [" + rows + "] --data.chat_template " + sparing;
  const Outcome trained =
      run("train " + set + " --train.steps 1 --data.shuffle false --output " + folder() + "/lossy");
  EXPECT_EQ(trained.code, 0) << trained.err;
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = trained.err.find(text); at != std::string::npos; at = trained.err.find(text, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("lossy.jsonl:2] the chat template leaves out content of role 'system'"), 1u) << trained.err;
  EXPECT_EQ(count("lossy.jsonl:3] a message has a role that is not in the chat template"), 1u) << trained.err;
  const Json lost = Json::parse_file(folder() + "/lossy/summary.json").at("data").at("lost");
  EXPECT_GE(lost.at("the chat template leaves out content of role 'system'").as_int(), 2);
  const Outcome seen = run("data inspect " + set + " --summary");
  EXPECT_NE(seen.out.find("the chat template leaves out content of role 'system' (2 rows)"),
            std::string::npos)
      << seen.out;

  const std::string model = folder() + "/sparing_model";
  std::filesystem::copy(folder() + "/model", model, std::filesystem::copy_options::recursive);
  write_file(model + "/chat_template.jinja", read_file(sparing));
  write_file(rows, "{\"messages\": [" + system + user + "]}\n{\"messages\": [" + system + user + "]}\n");
  const Outcome answered = run("batch " + model + " " + rows + " --out " + folder() + "/lossy_answers -n 1");
  EXPECT_NE(answered.err.find("lossy.jsonl:1] the chat template leaves out content of role 'system'"),
            std::string::npos)
      << answered.err;
  EXPECT_NE(answered.err.find("2 rows have prompts"), std::string::npos) << answered.err;
  EXPECT_NE(run("generate " + model + " -p 1 -n 1 --system x").err.find("content of role 'system'"),
            std::string::npos);
}

TEST_F(DataCli, ATableIsTheSameDataAsItsRows) {
  const std::string lines = instructions("table.jsonl"), table = folder() + "/table.csv";
  std::string records = "\xEF\xBB\xBFid,instruction,output\r\n";
  for (int i = 0; i < 10; ++i) records += fmt::format("{},\"What is {} + 1?\",{}\r\n", i, i, i + 1);
  write_file(table, records);
  const auto train = [&](const std::string& file, const std::string& name) {
    const std::string out = folder() + "/" + name;
    const Outcome outcome =
        run("train " + yaml() + " --output " + out + " --train.steps 3 --data.train [" + file + "]");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("table.csv: id (10)") != std::string::npos, file == table) << outcome.err;
    return losses(out);
  };
  EXPECT_EQ(train(lines, "of_lines"), train(table, "of_table"));
  make_directories(folder() + "/texts");
  for (const char* name : {"a.txt", "b.txt"}) write_file(folder() + "/texts/" + name, "one two three\n");
  const Outcome texts = run("data inspect " + yaml() + " --data.train [" + folder() + "/texts] --summary");
  EXPECT_EQ(texts.code, 0) << texts.err;
  EXPECT_NE(texts.out.find("kept 2 of 2 rows"), std::string::npos) << texts.out;
}

TEST_F(DataCli, InspectShowsWhatBecomesOfRows) {
  const std::string bad = instructions("bad.jsonl", 3);
  const Outcome outcome = run("data inspect " + yaml() + " --data.train [" + bad + "] --rows 1");
  ASSERT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("a run would stop here, at the first of 1 bad rows"), std::string::npos)
      << outcome.err;
  const Outcome skipping =
      run("data inspect " + yaml() + " --data.train [" + bad + "] --rows 1 --data.on_bad_row skip");
  EXPECT_EQ(skipping.code, 0) << skipping.err;
  EXPECT_EQ(skipping.out, outcome.out);
  for (const char* part : {"[[1|", "kept 10 of 11 rows; dropped 1 bad", "10 alpaca", "% filled",
                           "longest rows:", "bad.jsonl:4] instruction must be a string"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << outcome.out;
  write_file(folder() + "/rows_of_no_format.jsonl", "{\"no\": 1}\n");
  const Outcome none =
      run("data inspect " + yaml() + " --data.train [" + folder() + "/rows_of_no_format.jsonl]");
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.out.find("kept 0 of 1 rows"), std::string::npos) << none.out;
  EXPECT_NE(none.err.find("a run would stop here, at the first of 1 bad rows"), std::string::npos)
      << none.err;
  expect_refused("data inspect " + yaml() + " --data.on_bad_row skip --data.train [" + folder() +
                     "/rows_of_no_format.jsonl]",
                 2, "no row of rows_of_no_format.jsonl is kept");
  const std::string own = folder() + "/own.yaml";
  write_file(own, "model: {path: " + folder() + "/model}\noutput: x\nadapters: [{name: a, train: [" +
                      folder() + "/train.jsonl]}]\n");
  expect_refused("data inspect " + own, 2, "adapters have data of their own; name one by --adapter: [a]");
  EXPECT_EQ(run("data inspect " + own + " --adapter a --summary").out,
            run("data inspect --model.path " + folder() + "/model --data.train [" + folder() +
                "/train.jsonl] --summary")
                .out);
  expect_refused("data inspect " + yaml() + " --data.train [" + folder() + "/absent*.jsonl]", 2,
                 "absent*.jsonl");
}

}  // namespace
}  // namespace temper
