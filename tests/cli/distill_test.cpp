// Distillation as a user has it: its teachers, several ranks, stopped and resumed, refused.
#include "tests/cli/ranks_fixture.h"

namespace temper {
namespace {

class DistillCli : public RanksOfARun {
 protected:
  static void SetUpTestSuite() {
    Cli::SetUpTestSuite();
    EXPECT_EQ(run("init " + folder() + "/model " + teacher() + " --seed 7").code, 0);
  }
  static std::string teacher() { return folder() + "/teacher"; }
  static std::string flags(int steps = 4, const std::string& cross_entropy = "0.2",
                           const std::string& teacher = DistillCli::teacher()) {
    return fmt::format(
        "--recipe distill --train.steps {} --train.schedule.type constant --distill.teacher {} "
        "--distill.temperature 1.5 --distill.cross_entropy {} ",
        steps, teacher, cross_entropy);
  }
  static double number(const Json& line, const char* name) { return line.at(name).as_double(); }
};

TEST_F(DistillCli, LearnsFromAnotherModel) {
  const std::string out = train("distill_pure", flags(4, "0") + "--data.eval [" + folder() + "/eval.jsonl]");
  const std::vector<Json> lines = metrics(out);
  EXPECT_NEAR(number(lines[0], "loss"), 2.25 * number(lines[0], "divergence"), 1e-6);
  EXPECT_LT(number(lines[3], "divergence"), number(lines[0], "divergence"));
  EXPECT_GT(number(lines[0], "teacher_entropy"), 0);
  EXPECT_LT(number(lines.back(), "eval_divergence"), number(lines[0], "divergence"));
  EXPECT_GE(number(lines.back(), "eval_top1_agreement"), 0);
}

TEST_F(DistillCli, OfSeveralRanksIsThatOfOne) {
  expect_on_meshes(
      "distill", flags(), train("distill_one", flags()),
      {"--ranks 2 --parallel.tensor 2", "--ranks 2 --parallel.shard 2", "--ranks 2 --parallel.replicate 2"});
}

TEST_F(DistillCli, AnAdapterLearnsFromTheModelBelowAndRunsResume) {
  const std::string adapter = "--recipe distill --adapters '[{name: a, rank: 4}]' --train.steps 4 ";
  const std::string base = train("distill_adapter", adapter);
  // A new adapter changes nothing: the model teaches what it computes.
  EXPECT_EQ(number(metrics(base + "/adapters/a")[0], "divergence"), 0);
  const std::string whole = train("distill_whole", flags());
  const std::string cut = train("distill_cut", flags(2));
  EXPECT_EQ(train("distill_cut", flags()), cut);
  expect_same_model(cut, whole);
}

TEST_F(DistillCli, AQuantizedModelLearnsFromItselfOrAnother) {
  const std::string quantized = "--quantize.preset NVFP4 ";
  const std::vector<Json> itself = metrics(
                              train("distill_itself", "--recipe distill --train.steps 2 " + quantized)),
                          other =
                              metrics(train("distill_copy", "--recipe distill --train.steps 2 " + quantized +
                                                                "--distill.teacher " + folder() + "/model"));
  // Before the first update both are the same weights without rounding.
  EXPECT_GT(number(itself[0], "divergence"), 0);
  EXPECT_EQ(number(itself[0], "divergence"), number(other[0], "divergence"));
}

TEST_F(DistillCli, LearnsFromTheLargestLogitsInMemoryOrStored) {
  const std::string logits = folder() + "/logits",
                    one_row = "--data.packing none --train.micro_batch_tokens 1 ";
  const std::string memory = train("distill_top", flags() + "--distill.top_k 8 " + one_row);
  const auto stored = [&](const std::string& teacher) {
    return flags(4, "0.2", teacher) + "--distill.top_k 8 --distill.teacher_logits " + logits + " ";
  };
  expect_same_model(train("distill_stored", stored(teacher()) + one_row), memory);
  // The folder is read by a run without a teacher.
  const std::string read = train("distill_read", stored("''") + one_row);
  expect_same_model(read, memory);
  EXPECT_EQ(number(metrics(memory)[0], "teacher_entropy"), number(metrics(read)[0], "teacher_entropy"));
  // Rows in another order and packed, stopped and resumed.
  const auto packed = [&](int steps) {
    return flags(steps, "0.2", "''") + "--distill.top_k 8 --train.seed 5 --distill.teacher_logits " + logits;
  };
  const std::string cut = train("distill_stopped", packed(2));
  EXPECT_EQ(train("distill_stopped", packed(4)), cut);
  expect_same_model(cut, train("distill_unstopped", packed(4)));
}

TEST_F(DistillCli, LargestLogitsOfSeveralRanksAreThoseOfOne) {
  const std::string top = flags() + "--distill.top_k 8 ";
  const std::initializer_list<const char*> meshes{"--ranks 2 --parallel.tensor 2",
                                                  "--ranks 2 --parallel.shard 2"};
  expect_on_meshes("distill_top_meshes", top, train("distill_top_one", top), meshes);
  // What two ranks with half of the vocabulary each have stored serves one, and the other way round.
  const auto stored = [&](const std::string& name) {
    return top + "--distill.teacher_logits " + folder() + "/logits_" + name + " ";
  };
  expect_on_meshes("distill_stored_meshes", stored("one"), train("distill_one_stored", stored("one")),
                   meshes);
  train("distill_two_stored", stored("two") + "--ranks 2 --parallel.tensor 2");
  expect_on_meshes("distill_two_meshes", stored("two"), train("distill_read_two", stored("two")), meshes);
}

TEST_F(DistillCli, RefusesStoredLogitsOfSomethingElse) {
  const std::string logits = folder() + "/logits_refused";
  train("distill_refused_source", flags() + "--distill.top_k 4 --distill.teacher_logits " + logits);
  const auto refused = [&](const std::string& top_k, const std::string& teacher, const std::string& stored,
                           const std::string& expected, const std::string& more = "") {
    expect_refused(
        fmt::format("train {} --output {}/no --recipe distill --distill.top_k {} --distill.teacher "
                    "{} --distill.teacher_logits {} {}",
                    yaml(), folder(), top_k, teacher, stored, more),
        2, expected);
  };
  const std::string same = "--distill.temperature 1.5";
  refused("5", teacher(), logits, "is of another value of distill.top_k (was 4, is 5)", same);
  refused("4", teacher(), logits, "is of another value of distill.temperature (was 1.5, is 2.0)",
          "--distill.temperature 2");
  refused("4", folder() + "/model", logits, "is of another value of the teacher's weights", same);
  refused("4", teacher(), logits, "has no logits for a row of the data", same + " --data.loss all");
  refused("0", teacher(), logits, "[distill.teacher_logits] is for the largest logits alone");
  refused("4", teacher(), teacher(), "has no teacher_logits.json");
  refused("4", "''", folder() + "/absent", "[distill.teacher] is missing");
  refused("100000", teacher(), "''", "[distill.top_k] is 100000, but the vocabulary has");
  write_file(logits + "/teacher_logits-00001.safetensors", "something else");
  refused("4", teacher(), logits, "is not what was stored", same);
}

TEST_F(DistillCli, RefusesWhatItCannotDo) {
  const std::string base = "train " + yaml() + " --output " + folder() + "/no --recipe distill ";
  expect_refused(base, 2, "[distill.teacher] is missing: give the folder of a model to learn from");
  expect_refused(base + "--distill.teacher /nowhere", 2, "[distill.teacher] '/nowhere'");
  expect_refused(
      "train " + yaml() + " --output " + folder() + "/no " + flags() + "--distill.teacher_share 0.3", 2,
      "[distill.teacher_share] is read by jensen_shannon only");
  expect_refused("train " + yaml() + " --output " + folder() + "/no " + flags() + "--train.z_loss 0.1", 2,
                 "[train.z_loss] is 0.1, which recipe distill does not have");
  expect_refused(base + "--distill.temperature 0 --distill.teacher " + teacher(), 2,
                 "'distill.temperature': expected a number above 0, found '0'");
}

}  // namespace
}  // namespace temper
