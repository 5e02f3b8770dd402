// What several ranks leave in the run's folder.
#include <map>

#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class FilesOfRanks : public Cli {};

// What a run says of its mesh, and its trace with a lane for each rank.
TEST_F(FilesOfRanks, HaveTheLayoutAndATraceOfAllOfThem) {
  const std::string out = folder() + "/layout";
  const Outcome outcome = run("train " + yaml() + " --output " + out +
                              " --ranks 4 --parallel.tensor 2 --parallel.shard 2 --profile --train.steps 4");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json layout = Json::parse_file(out + "/layout.json");
  EXPECT_EQ(layout.at("mesh").at("tensor").as_int(), 2);
  size_t divided = 0;
  for (const Json& parameter : layout.at("parameters").as_array()) {
    int64_t elements = 0, whole = 1;
    for (const Json& dim : parameter.at("shape").as_array()) whole *= dim.as_int();
    for (const Json& part : parameter.at("parts").as_array())
      for (const Json& rows : part.at("rows").as_array())
        elements += rows.as_array().at(1).as_int() * part.at("columns").as_array().at(1).as_int();
    const bool cut = parameter.at("parts").as_array().size() > 1;
    divided += cut ? 1 : 0;
    EXPECT_GE(elements, whole);  // neighbours may share heads of keys
    EXPECT_EQ(parameter.at("gradient summed over"), Json(cut ? "shard" : "shard, tensor"));
  }
  EXPECT_GT(divided, 4U);
  std::map<int64_t, std::map<std::string, int>> lanes;
  const Json trace = Json::parse_file(out + "/trace.json");
  for (const Json& event : trace.at("traceEvents").as_array())
    ++lanes[event.at("pid").as_int()][event.at("name").as_string()];
  ASSERT_EQ(lanes.size(), 4U);
  for (auto& [rank, events] : lanes) {
    EXPECT_EQ(events["step"], 2) << rank;
    EXPECT_GT(events["reduce_scatter"], 0) << rank;
    EXPECT_EQ(events["reduce_scatter"], lanes[0]["reduce_scatter"]) << rank;
  }
}

}  // namespace
}  // namespace temper
