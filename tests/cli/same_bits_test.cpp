// What may change while the bits of a run stay, and what is reported when they may not.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

TEST_F(Cli, TheNumberOfThreadsMayChangeBetweenCommands) {
  const std::string train = "train " + yaml() + " --train.schedule.type constant --train.threads ";
  const std::string whole = folder() + "/one_thread", parts = folder() + "/other_threads";
  ASSERT_EQ(run(train + "1 --train.steps 10 --output " + whole).code, 0);
  ASSERT_EQ(run(train + "3 --train.steps 6 --output " + parts).code, 0);
  const Outcome resumed = run(train + "2 --train.steps 10 --output " + parts);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(read_file(parts + "/model/model.safetensors"), read_file(whole + "/model/model.safetensors"));
}

TEST_F(Cli, AnotherProcessorIsReported) {
  const std::string out = folder() + "/moved", kernels = out + "/kernels.json";
  const std::string train = "train " + yaml() + " --output " + out + " --train.steps ";
  ASSERT_EQ(run(train + "2").code, 0);
  const std::string said =
      "it resumes with the same kernels, but results may differ in their last bits from now on";
  const Outcome here = run(train + "3");
  ASSERT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(here.err.find(said), std::string::npos) << here.err;
  Json stored = Json::parse_file(kernels);
  for (auto& [key, value] : stored.as_object())
    if (key == "device") value = "another processor";
  write_file(kernels, stored.dump());
  const Outcome moved = run(train + "4");
  ASSERT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(moved.err.find("the run was on \"another processor\" before"), std::string::npos) << moved.err;
  EXPECT_NE(moved.err.find(said), std::string::npos) << moved.err;
}

}  // namespace
}  // namespace temper
