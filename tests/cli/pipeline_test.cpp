// Stages of a pipeline train what one rank trains, and read and write the same checkpoints and models.
#include "tests/cli/ranks_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class Pipeline : public RanksOfARun {};

TEST_F(Pipeline, LearnsWhatOneRankLearns) {
  const std::string flags =
      "--eval.every_steps 6 --data.eval_fraction 0.02 --train.micro_batch_tokens 64 --train.rows_per_step 6 ";
  expect_on_meshes("stages", flags, train("unstaged", flags),
                   {"--ranks 2 --parallel.pipeline 2", "--ranks 4 --parallel.pipeline 2 --parallel.tensor 2",
                    "--ranks 4 --parallel.pipeline 2 --parallel.shard 2 --parallel.shard_level 3",
                    "--ranks 4 --parallel.pipeline 2 --train.activation_checkpointing full",
                    "--ranks 2 --parallel.pipeline 2 --parallel.pipeline_schedule zb_h1"});
  const std::string adapters = flags + "--adapters \"[{name: a, rank: 4, dropout: 0.1}]\" ";
  const std::string one = train("unstaged_adapter", adapters);
  expect_same_course(train("staged_adapter", adapters + "--ranks 2 --parallel.pipeline 2") + "/adapters/a",
                     one + "/adapters/a");
}

// References are computed by all stages together: once and stored, by a second model, or by the model without
// its adapter; KTO asks for them in every update.
TEST_F(Pipeline, LearnsJudgedAnswers) {
  const std::string flags =
      "--recipe preference --data.max_length 96 --train.steps 4 --train.micro_batch_tokens 192 "
      "--eval.every_steps 2 "
      "--data.eval " +
      folder() + "/pairs_eval.jsonl --data.train " + folder() + "/pairs_train.jsonl ";
  expect_on_meshes("dpo", flags, train("dpo_unstaged", flags),
                   {"--ranks 2 --parallel.pipeline 2",
                    "--ranks 4 --parallel.pipeline 2 --parallel.context 2 --preference.precompute false"});
  const std::string adapter = flags + "--adapters \"[{name: a, rank: 4}]\" ",
                    one = train("dpo_adapter", adapter);
  expect_same_course(train("dpo_adapter_staged", adapter + "--ranks 2 --parallel.pipeline 2") + "/adapters/a",
                     one + "/adapters/a");
  const std::string judged =
      "--recipe preference --preference.loss kto --data.max_length 96 --train.steps 4 "
      "--train.micro_batch_tokens 96 --data.train " +
      folder() + "/judged_train.jsonl ";
  expect_on_meshes("kto", judged, train("kto_unstaged", judged), {"--ranks 2 --parallel.pipeline 2"});
}

// A teacher in memory, whose stages read the rows of an update before the student's do.
TEST_F(Pipeline, LearnsFromATeacher) {
  const std::string eval = "--eval.every_steps 2 --data.eval_fraction 0.1 --train.steps 4 ",
                    flags = "--recipe distill --train.micro_batch_tokens 64 --train.rows_per_step 6 " + eval,
                    teacher = folder() + "/teacher";
  ASSERT_EQ(run("init " + folder() + "/qwen3-tiny " + teacher + " --seed 5").code, 0);
  const std::string other = flags + "--distill.teacher " + teacher + " ";
  expect_on_meshes("taught", other, train("taught_unstaged", other),
                   {"--ranks 2 --parallel.pipeline 2", "--ranks 4 --parallel.pipeline 2 --parallel.context 2",
                    "--ranks 2 --parallel.pipeline 2 --parallel.pipeline_schedule zb_h1"});
  const std::string itself = flags + "--adapters \"[{name: a, rank: 4}]\" ",
                    one = train("taught_adapter", itself);
  expect_same_course(
      train("taught_adapter_staged", itself + "--ranks 2 --parallel.pipeline 2") + "/adapters/a",
      one + "/adapters/a");
}

// A teacher's logits that are stored, by one rank or by stages.
TEST_F(Pipeline, LearnsStoredLogits) {
  const auto flags = [&](const std::string& logits) {
    return "--recipe distill --distill.teacher " + folder() +
           "/model --distill.top_k 8 --distill.teacher_logits " + folder() + "/" + logits +
           " --train.steps 4 --train.micro_batch_tokens 64 ";
  };
  const std::string stages = "--ranks 2 --parallel.pipeline 2 ",
                    one = train("logits_unstaged", flags("logits"));
  expect_same_course(train("logits_staged", flags("logits") + stages), one);
  expect_same_course(train("logits_by_stages", flags("logits_of_stages") + stages), one);
}

// Copies of the embedding and of the head, which are one weight in the model, are on the first and the last
// stage; a checkpoint of stages continues on one rank.
TEST_F(Pipeline, TrainsModulesInFull) {
  for (const char* modules : {"[embed_tokens]", "[lm_head]", "[embed_tokens, lm_head, norm]"}) {
    const std::string name = "full" + std::to_string(std::string(modules).size()),
                      flags = std::string("--train.micro_batch_tokens 64 --train.schedule.type constant ") +
                              "--adapters \"[{name: a, rank: 4, modules_to_save: " + modules + "}]\" ",
                      stages = "--ranks 2 --parallel.pipeline 2 ", one = train(name, flags) + "/adapters/a";
    expect_same_course(train(name + "_staged", flags + stages) + "/adapters/a", one);
    train(name + "_continued", flags + stages + "--train.steps 5");
    expect_same_course(train(name + "_continued", flags) + "/adapters/a", one);
  }
}

// All stages know every amax, so that checkpoints and exports have them, and round what one rank rounds.
TEST_F(Pipeline, RoundsWhatOneRankRounds) {
  const std::string
      flags = "--quantize.preset INT8 --train.micro_batch_tokens 64 --train.schedule.type constant ",
      stages = "--ranks 2 --parallel.pipeline 2 ", one = train("rounded", flags);
  const std::string staged = train("rounded_staged", flags + stages);
  expect_same_course(staged, one);
  for (const char* more : {"--parallel.tensor 2", "--parallel.replicate 2"})
    train(std::string("rounded ") + more, flags + "--ranks 4 --parallel.pipeline 2 " + more);
  const auto amax_of = [](const std::string& out) {
    return read_file(out + "/checkpoints/" + newest_state(out) + "/quantizers.safetensors");
  };
  EXPECT_EQ(amax_of(staged), amax_of(one));
  train("rounded_continued", flags + stages + "--train.steps 5");
  expect_same_course(train("rounded_continued", flags), one);
  const std::string adapter = flags + "--adapters \"[{name: a, rank: 4}]\" ";
  expect_same_course(train("rounded_adapter_staged", adapter + stages) + "/adapters/a",
                     train("rounded_adapter", adapter) + "/adapters/a");
}

// In processes, whose transfers are messages: the bits of threads.
TEST_F(Pipeline, OfProcessesGivesTheBitsOfThreads) {
  const std::string flags =
      "--train.micro_batch_tokens 64 --ranks 4 --parallel.pipeline 2 --parallel.shard 2 ";
  expect_same_model(train_in_processes("processes", flags), train("threads", flags));
}

// Interrupted, a run continues with the same bits; with other stages, or none, it learns the same.
TEST_F(Pipeline, ContinuesItsCheckpoints) {
  const std::string flags = "--train.micro_batch_tokens 64 --train.schedule.type constant ",
                    two = "--ranks 2 ", stages = two + "--parallel.pipeline 2 ";
  const std::string whole = train("whole", flags + stages);
  train("continued", flags + stages + "--train.steps 5");
  expect_same_model(train("continued", flags + stages), whole);
  for (const std::string& other : {std::string(), two, two + "--parallel.tensor 2 "}) {
    const std::string name = "elsewhere" + std::to_string(other.size());
    train(name, flags + stages + "--train.steps 5");
    expect_same_course(train(name, flags + other), whole);
    const std::string back = "back" + std::to_string(other.size());
    train(back, flags + other + "--train.steps 5");
    expect_same_course(train(back, flags + stages), whole);
  }
}

// Before a run, and of one: which layers each stage has, and what each needs.
TEST_F(Pipeline, IsPlannedStageByStage) {
  const std::string out = folder() + "/planned",
                    command = "train " + yaml() + " --output " + out +
                              " --train.micro_batch_tokens 64 --explain-memory --parallel.pipeline 2 ";
  const Outcome dry = run(command + "--ranks 4 --dry-run");
  ASSERT_EQ(dry.code, 0) << dry.err;
  expect_has(dry.out, "ranks          4: pipeline 2, replicate 2, shard 1; memory is that of a rank of the");
  expect_has(dry.out, "stage 0        layers 0 to 1, embedding; memory about ");
  expect_has(dry.out, "stage 1        layer 2, head; memory about ");
  expect_has(dry.out, "planned           stage 0      stage 1\n");
  EXPECT_FALSE(exists(out + "/layout.json"));

  const Outcome done = run(command + "--ranks 2 --train.steps 2");
  ASSERT_EQ(done.code, 0) << done.err;
  expect_has(done.err, "planned           stage 0      stage 1\n");
  const Json layout = Json::parse_file(out + "/layout.json");
  EXPECT_EQ(layout.at("stages").as_array().at(1).at("layers").dump(), "[[2, 1]]");
}

TEST_F(Pipeline, IsVerifiedBeforeARun) {
  const std::string goldens = TEMPER_SOURCE_DIR "/tests/goldens/";
  for (const char* model :
       {"qwen3_moe_trained", "qwen3_next_trained", "gemma3_text_trained", "phi3_trained"}) {
    const Outcome outcome = run("verify-layout " + yaml() + " --model.path " + goldens + model +
                                " --ranks 2 --parallel.pipeline 2 --train.router.balance_scope global");
    EXPECT_EQ(outcome.code, 0) << model << ": " << outcome.err;
    expect_has(outcome.out, "2 ranks: pipeline 2, replicate 1, shard 1");
  }
}

using NightlyPipeline = Pipeline;

// Runs of two stages, also of two parts each, whose processes are killed at random end with the bits of one
// that was not disturbed.
TEST_F(NightlyPipeline, KilledAtRandomEndsWithTheSameBits) {
  const int status = std::system(("python3 " TEMPER_SOURCE_DIR "/tools/torture/kills.py " TEMPER_BINARY
                                  " --kills 24 --ranks 2 --runs pipeline,interleaved >" +
                                  folder() + "/kills 2>&1 </dev/null")
                                     .c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(folder() + "/kills");
}

// Stages answer with a copy of the weights that has none, of what is trained as it is then.
TEST_F(Pipeline, AnswersQuestions) {
  const std::string flags = "--eval.exact_match 6 --eval.max_new_tokens 6 --data.eval [" + folder() +
                            "/eval.jsonl] --train.micro_batch_tokens 64 --train.rows_per_step 6 ";
  const auto answers = [&](const std::string& name, const std::string& more, const std::string& learner) {
    const std::string out = train(name, flags + more), log = read_file(out + "/console.log");
    const Json summary = Json::parse_file(out + learner + "/summary.json");
    std::string found = fmt::format("{} {}\n", summary.at("exact_match_before").as_double(),
                                    summary.at("exact_match_after").as_double());
    for (size_t at = 0; (at = log.find("  answer: ", at)) != std::string::npos; ++at)
      found += log.substr(at, log.find('\n', at) - at) + "\n";
    return found;
  };
  for (const std::string& learner : {std::string(), std::string("/adapters/a")}) {
    const std::string name = learner.empty() ? "asked" : "asked_adapter",
                      more = learner.empty() ? "" : "--adapters \"[{name: a, rank: 4}]\" ",
                      one = answers(name, more, learner);
    expect_has(one, "  answer: ");
    for (const char* mesh :
         {"--ranks 2 --parallel.pipeline 2", "--ranks 4 --parallel.pipeline 2 --parallel.shard 2"})
      EXPECT_EQ(answers(name + " " + mesh, more + mesh, learner), one) << mesh;
  }
}

// The schedule that a run would have, with the micro-batches of its first update.
TEST_F(Pipeline, PrintsItsScheduleBeforeARun) {
  const auto drawn = [&](const std::string& arguments) {
    const Outcome outcome =
        run("train " + yaml() + " --output " + folder() + "/scheduled --dry-run " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string rows = "--train.rows_per_step 6 --train.micro_batch_tokens 1 ";
  const std::string whole = drawn(rows + "--ranks 2 --parallel.pipeline 2");
  expect_has(whole,
             "ranks          2: pipeline 2, replicate 1, shard 1; memory is that of a rank of the "
             "stage that needs most\n");
  expect_has(whole, "1f1b: 2 stages, 6 micro-batches; ");
  expect_has(whole, "rank 0  F0 ");
  expect_has(drawn(rows + "--ranks 2 --parallel.pipeline 2 --parallel.pipeline_schedule zb_h1"),
             "zb_h1: 2 stages, 6 micro-batches; ");
  // Of two replicas each has half of the rows.
  expect_has(drawn(rows + "--ranks 4 --parallel.pipeline 2"), "1f1b: 2 stages, 3 micro-batches; ");
  EXPECT_EQ(drawn(rows + "--ranks 2").find("micro-batches; "), std::string::npos);
}

TEST_F(Pipeline, SaysWhatItCannotDo) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run("train " + yaml() + " --output " + folder() + "/refused " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  const std::string two = "--ranks 2 --parallel.pipeline 2 ";
  expect_has(refusal("--ranks 3 --parallel.pipeline 2"),
             "[parallel.pipeline] is 2, but the number of ranks is 3");
  expect_has(refusal("--ranks 4 --parallel.pipeline 4"),
             "[parallel.pipeline] is 4, but the model has 3 layers, and each part needs one; possible are "
             "{pipeline: 2, replicate: 2, shard: 1} (about ");
  expect_has(refusal("--parallel.pipeline_chunks 2"), "[parallel.pipeline_chunks] is 2");
  expect_has(refusal("--parallel.pipeline_schedule zb_h1"), "[parallel.pipeline_schedule] is zb_h1");
  expect_has(refusal(two + "--quantize.preset INT8_WEIGHT_ONLY --quantize.calibration mse"),
             "[parallel.pipeline] is 2, but quantize.calibration mse compares");
  expect_has(refusal(two + "--eval.exact_match 4 --quantize.preset INT8_WEIGHT_ONLY"),
             "[parallel.pipeline] is 2, but questions are answered");
  expect_has(refusal(two + "--recipe distill --adapters '[{name: a}, {name: b}]'"),
             "recipe distill has a teacher in memory and 2 adapters, whose passes have rows of several");
  expect_has(refusal("--parallel.pipeline 0"), "'parallel.pipeline': expected an integer at least 1");
}

}  // namespace
}  // namespace temper
