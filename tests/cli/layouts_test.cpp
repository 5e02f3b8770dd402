// Divisions between 2, 4 and 8 ranks that have all pairs of what a run may choose, with one stage of a
// pipeline and with several: two degrees, a degree and a level, a method of context ranks and a kind of
// model, a kind of model and a way of training, and so on.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

class Layouts : public Cli {};

TEST_F(Layouts, OfEveryPairOfChoicesTrainWhatOneRankDoes) {
  const TemporaryDirectory files;
  const int status = std::system(("python3 " TEMPER_SOURCE_DIR "/tools/sweep_layouts.py " TEMPER_BINARY
                                  " --cover --updates 3 >" +
                                  (files / "text") + " 2>&1 </dev/null")
                                     .c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(files / "text");
  for (const char* way : {"full", "adapters", "preferences"})
    for (const char* model : {"dense", "windows", "mixture", "sinks", "latent", "hybrid"})
      EXPECT_EQ(read_file(files / "text").find(fmt::format("not in stages: {}, {}:", model, way)),
                std::string::npos);
}

}  // namespace
}  // namespace temper
