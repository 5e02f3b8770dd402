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
  static std::string flags(int steps = 4, const std::string& cross_entropy = "0.2") {
    return fmt::format(
        "--recipe distill --train.steps {} --train.schedule.type constant --distill.teacher {} "
        "--distill.temperature 1.5 --distill.cross_entropy {} ",
        steps, teacher(), cross_entropy);
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
