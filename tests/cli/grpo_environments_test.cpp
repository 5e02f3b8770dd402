// Programs that judge answers, or answer themselves.
#include <algorithm>

#include "tests/cli/grpo_fixture.h"

namespace temper {
namespace {

using GrpoEnvironments = GrpoCli;

// The environment of a program answers once; the model sees its words and is not trained on them.
TEST_F(GrpoEnvironments, AnEnvironmentAnswers) {
  write_file(folder() + "/environment.py",
             "import json, sys\n"
             "for line in sys.stdin:\n"
             "    asked = json.loads(line)\n"
             "    if len(asked['messages']) < 3:\n"
             "        said = {'messages': [{'role': 'user', 'content': 'Sure?'}], 'reward': 0.25}\n"
             "    else:\n"
             "        said = {'reward': len(asked['text']) / 10}\n"
             "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
  const std::string out = trained(configuration("turns", "  rewards: [{type: program, command: [python3, " +
                                                             folder() + "/environment.py]}]\n"),
                                  "turns", " --grpo.group_size 64");
  int64_t longer = 0;
  for (const Json& line : rollouts(out + "/rollouts.jsonl")) {
    const Json::Array& passages = line.at("passages").as_array();
    EXPECT_EQ(number(line.at("rewards"), "program"), number(line, "reward"));  // of all turns
    // Of an answer whose tokens are not those of its text, the turns are passages of their own.
    if (line.at("turns").as_int() < 2 || passages.size() > 1) continue;
    ++longer;
    const Json& passage = passages.at(0);
    const Json::Array &sampled = passage.at("sampled").as_array(),
                      &log_probs = passage.at("log_probs").as_array();
    bool heard = false, answered = false;
    for (size_t i = 0; i < sampled.size(); ++i) {
      if (sampled[i].as_int() == 0) {
        heard = true;
        EXPECT_EQ(log_probs[i].as_double(), 0);
      } else {
        answered = answered || heard;
      }
    }
    EXPECT_TRUE(heard);
    EXPECT_TRUE(answered);
  }
  // Random tokens end a turn now and then.
  EXPECT_GT(longer, 3);
  if (!has_invariant_kernels()) return;
  // Of ranks that answer together one listens, and all learn. Others wait for conversations of their own.
  const std::pair<const char*, const char*> meshes[] = {
      {"tensor", "--parallel.tensor 2"}, {"matrices", "--parallel.shard 2 --parallel.shard_level 3"}};
  for (const auto& [name, mesh] : meshes) {
    const std::string ranks = trained(folder() + "/turns.yaml", std::string("turns_") + name,
                                      std::string(" --grpo.group_size 64 --train.steps 1 --ranks 2 ") + mesh);
    for (const char* same : {"reward", "turns", "target_tokens"})
      EXPECT_EQ(number(metrics(ranks).front(), same), number(metrics(out).front(), same)) << mesh;
    EXPECT_NEAR(number(metrics(ranks).front(), "grad_norm"), number(metrics(out).front(), "grad_norm"), 1e-4);
  }
}

// A template that leaves out what the assistant said before: each form that the model saw is trained on.
TEST_F(GrpoEnvironments, TemplatesMayWriteEarlierTurnsOtherwise) {
  write_file(folder() + "/forgetful.jinja",
             "{%- for message in messages %}"
             "{{- '<|im_start|>' + message.role + '\\n' }}"
             "{%- if message.role == 'user' or loop.last %}{{- message.content }}{%- endif %}"
             "{{- '<|im_end|>\\n' }}{%- endfor %}"
             "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}");
  write_file(folder() + "/again.py",
             "import json, sys\n"
             "for line in sys.stdin:\n"
             "    asked = json.loads(line)\n"
             "    again = {'messages': [{'role': 'user', 'content': 'Again.'}]}\n"
             "    said = again if len(asked['messages']) < 3 else {'reward': len(asked['text']) / 10}\n"
             "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
  const std::string out = trained(
      configuration("forks", "  rewards: [{type: program, command: [python3, " + folder() + "/again.py]}]\n"),
      "forks", " --data.chat_template " + folder() + "/forgetful.jinja --train.steps 2 --grpo.group_size 64");
  int64_t forks = 0, targets = 0;
  for (const Json& line : rollouts(out + "/rollouts.jsonl")) {
    const Json::Array& passages = line.at("passages").as_array();
    if (line.at("rollout").as_int() == 0)
      for (const Json& passage : passages)
        for (const Json& sampled : passage.at("sampled").as_array()) targets += sampled.as_int();
    if (passages.size() < 2) continue;
    ++forks;
    for (const Json& passage : passages)
      for (const Json& sampled : passage.at("sampled").as_array()) EXPECT_EQ(sampled.as_int(), 1);
  }
  EXPECT_GT(forks, 1);
  EXPECT_EQ(number(metrics(out).front(), "target_tokens"), static_cast<double>(targets));
}

TEST_F(GrpoEnvironments, AnswersThatCannotBeJudged) {
  write_file(folder() + "/odd.py",
             "import json, sys\n"
             "for number, line in enumerate(sys.stdin):\n"
             "    asked = json.loads(line)\n"
             "    said = {'error': 'no idea'} if number % 5 == 0 else {'reward': number % 3}\n"
             "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
  const std::string rewards = "  rewards: [{type: program, command: [python3, " + folder() + "/odd.py]}]\n";
  expect_refused("train " + configuration("odd", rewards) + " --output " + folder() + "/odd", 2,
                 "no idea; grpo.filter.on_reward_error: drop leaves such answers out");
  const std::string out =
      trained(configuration("odd", rewards + "  filter: {on_reward_error: drop}\n"), "odd_dropped");
  EXPECT_GT(number(metrics(out).front(), "answers_failed"), 0);
  const auto lines = rollouts(out + "/rollouts.jsonl");
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const Json& line) {
    return line.find("error") != nullptr && line.at("reward").is_null();
  }));
}

// Numbers whose squares, or whose sums over turns, are beyond what gradients can be made of.
TEST_F(GrpoEnvironments, RewardsThatAreTooLargeToLearnFrom) {
  write_file(folder() + "/large.py",
             "import json, sys\n"
             "first, then = float(sys.argv[1]), float(sys.argv[2])\n"
             "for number, line in enumerate(sys.stdin):\n"
             "    asked = json.loads(line)\n"
             "    said = {'reward': first if number % 5 == 0 else number % 3}\n"
             "    if then and len(asked['messages']) < 3:\n"
             "        said = {'messages': [{'role': 'user', 'content': 'Sure?'}], 'reward': first}\n"
             "    elif then:\n"
             "        said = {'reward': then}\n"
             "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
  const auto config = [](const char* name, const char* rewards) {
    return configuration(name, fmt::format("  rewards: [{{type: program, command: python3 "
                                           "{}/large.py {}}}]\n",
                                           folder(), rewards));
  };
  expect_refused("train " + config("large", "1e308 0") + " --output " + folder() + "/large", 2,
                 "sample 0] reward program: 1e+308 is too large to learn from; expected at most 1e+30 in "
                 "magnitude; grpo.filter.on_reward_error: drop leaves such answers out");
  for (const auto& [name, numbers] : {std::pair{"large_alone", "-1e308 0"}, {"large_turns", "6e29 5e29"}}) {
    const std::string out =
        trained(config(name, numbers), name, " --grpo.group_size 32 --grpo.filter.on_reward_error drop");
    double failed = 0;
    for (const Json& line : metrics(out)) {
      failed += number(line, "answers_failed");
      EXPECT_LE(std::abs(number(line, "reward")), 6e29);
      EXPECT_TRUE(line.at("grad_norm").is_number());
    }
    EXPECT_GT(failed, 0) << name;
    int64_t dropped = 0;
    for (const Json& line : rollouts(out + "/rollouts.jsonl"))
      if (line.find("error") != nullptr) {
        ++dropped;
        EXPECT_TRUE(line.at("reward").is_null());  // nor is it what the first turn gave
        EXPECT_TRUE(line.at("rewards").as_object().empty());
      }
    EXPECT_EQ(dropped, static_cast<int64_t>(failed)) << name;
  }
}

// An answer that one rank cannot judge ends the run on all of them, at once, and the trained weights are
// saved.
TEST_F(GrpoEnvironments, ARankThatCannotJudgeEndsTheRun) {
  const std::string judge = folder() + "/one_question.py";
  const auto cannot_judge = [&](const std::string& question) {
    write_file(judge,
               "import json, sys\n"
               "for line in sys.stdin:\n"
               "    asked = json.loads(line)\n"
               "    bad = asked['row']['prompt'][0]['content'] == '" +
                   question +
                   "'\n"
                   "    said = {'error': 'no idea'} if bad else {'reward': len(asked['text']) % 3}\n"
                   "    print(json.dumps({'id': asked['id'], **said}), flush=True)\n");
  };
  cannot_judge("");
  const std::string config = configuration(
                        "one", "  rewards: [{type: program, command: [python3, " + judge + "]}]\n"),
                    flags = " --train.steps 2 --checkpoint.every_steps 0";
  std::string question;  // of the second rollout, which the second of two ranks asks
  for (const Json& line : rollouts(trained(config, "one_whole", flags) + "/rollouts.jsonl"))
    if (line.at("rollout").as_int() == 1 && line.at("group").as_int() == 1)
      question = line.at("question").as_string();
  cannot_judge(question);
  for (const char* mesh : {"1", "2", "2 --parallel.tensor 2"}) {
    const std::string out =
        folder() + "/one_of_" + std::string(mesh).substr(0, 1) + (std::string(mesh).size() > 1 ? "t" : "");
    const Outcome outcome = run("train " + config + " --output " + out + flags + " --ranks " + mesh);
    EXPECT_EQ(outcome.code, 2) << mesh << outcome.err;
    EXPECT_NE(
        outcome.err.find("no idea; grpo.filter.on_reward_error: drop leaves such answers out; the 1 steps "
                         "before it are saved in"),
        std::string::npos)
        << mesh << outcome.err;
    EXPECT_TRUE(exists(out + "/checkpoints/step-000001")) << mesh;
  }
  // In an evaluation, too.
  cannot_judge("What is 3 + 6?");
  const std::string held = folder() + "/judged_held_out.jsonl";
  write_file(held, prompts(6));
  write_file(folder() + "/others.jsonl", prompts(40).substr(prompts(6).size()));
  for (const char* ranks : {"1", "2"}) {
    const std::string out = folder() + "/one_held_" + ranks;
    expect_refused("train " + config + " --output " + out + flags + " --eval.every_steps 1 --data.train [" +
                       folder() + "/others.jsonl] --data.eval [" + held + "] --ranks " + ranks,
                   2, "the steps before this evaluation are saved in");
    EXPECT_TRUE(exists(out + "/checkpoints/step-000001")) << ranks;
  }
}

}  // namespace
}  // namespace temper
