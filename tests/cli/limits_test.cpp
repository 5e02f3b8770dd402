// Limits that the system sets: a run continues within them, or ends with the limit's name.
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"
#include "tests/support/sanitizers.h"

namespace temper {
namespace {

class Limits : public Cli {
 protected:
  // With these words before the program, in a shell of its own.
  static Outcome run_within(const std::string& limits, const std::string& arguments) {
    const TemporaryDirectory files;
    const std::string command = fmt::format("bash -c '{}; exec {} {}' >{} 2>{}", limits, TEMPER_BINARY,
                                            arguments, files / "out", files / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(files / "out"),
            read_file(files / "err")};
  }
  static std::string train(const std::string& name, const std::string& more = "") {
    return fmt::format("train {} --output {}/{} {}", yaml(), folder(), name, more);
  }
};

TEST_F(Limits, OfAddressesAreEnoughOrNamed) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "sanitizers reserve addresses of their own";
  ASSERT_EQ(run(train("whole")).code, 0);
  const std::string model = read_file(folder() + "/whole/model/model.safetensors");
  bool trained = false;
  for (const char* const option : {"v", "d"})
    for (const int mib : {400, 600, 800, 1200, 2000, 4000, 16000}) {
      const std::string name = fmt::format("{}{}", option, mib);
      const Outcome outcome =
          run_within(fmt::format("ulimit -{} {}", option, mib * 1024), train(name, "--train.threads 2"));
      EXPECT_TRUE(outcome.code == 0 || outcome.code == 4) << name << " " << outcome.code << outcome.err;
      trained = trained || outcome.code == 0;
      if (outcome.code == 0) {
        EXPECT_EQ(read_file(folder() + "/" + name + "/model/model.safetensors"), model) << name;
      } else {
        EXPECT_TRUE(outcome.err.find("ulimit -") != std::string::npos) << name << outcome.err;
        EXPECT_LT(mib, 4000) << name << outcome.err;
      }
    }
  EXPECT_TRUE(trained);
}

// The program has a thread already, and a user's processes count together.
TEST_F(Limits, OfThreadsAreNamed) {
  const std::string library = folder() + "/no_threads.so";
  write_file(folder() + "/no_threads.c",
             "#include <errno.h>\n#include <pthread.h>\n"
             "int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) { return "
             "EAGAIN; }\n");
  ASSERT_EQ(std::system(("cc -shared -fPIC -o " + library + " " + folder() + "/no_threads.c").c_str()), 0);
  const Outcome outcome = run_within("export LD_PRELOAD=" + library, train("threads", "--train.threads 2"));
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  expect_has(outcome.err, "threads");
  EXPECT_EQ(outcome.err.find("defect"), std::string::npos) << outcome.err;
}

TEST_F(Limits, OfDescriptorsAreNamed) {
  if (kSanitizerTakesMemory) GTEST_SKIP() << "a sanitizer needs descriptors for its own checks";
  int named = 0;
  for (const int descriptors : {4, 8, 12, 16, 24, 64}) {
    const Outcome outcome =
        run_within(fmt::format("ulimit -n {}", descriptors), train(fmt::format("n{}", descriptors)));
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 4 || outcome.code == 127)
        << descriptors << " " << outcome.code << outcome.err;
    EXPECT_EQ(outcome.err.find("defect"), std::string::npos) << outcome.err;
    named += outcome.err.find("ulimit -n") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace temper
