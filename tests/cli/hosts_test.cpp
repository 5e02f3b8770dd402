// Ranks on several hosts, which are namespaces of this machine where it allows some.
#include "tests/cli/cli_fixture.h"
#include "tests/support/errors.h"

namespace temper {
namespace {

class Hosts : public Cli {
 protected:
  // The exit code of a command of the shell, and all that it says.
  static Outcome shell(const std::string& command) {
    const TemporaryDirectory files;
    const int status = std::system(fmt::format("({}) >{} 2>&1 </dev/null", command, files / "text").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), "", read_file(files / "text")};
  }
};

// The bits of ranks on one host, also after one of the hosts was lost; tools/torture/hosts.py tries more.
TEST_F(Hosts, LeaveTheBitsOfOneHost) {
  const Outcome outcome = shell("python3 " TEMPER_SOURCE_DIR "/tools/torture/hosts.py " TEMPER_BINARY
                                " --times 1 --of_host 1 --cases same,apart,killed");
  if (outcome.err.find("hosts: skipped: ") != std::string::npos) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// They differ in the ids of their systems, as machines do that were made from one image.
TEST_F(Hosts, OfOneNameAreSeveral) {
  const std::string other =
      "unshare --mount sh -c 'mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"' " +
      folder() + "/other_boot_id ";
  write_file(folder() + "/other_boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
  if (const Outcome allowed = shell(other + "true"); allowed.code != 0)
    GTEST_SKIP() << "this machine does not allow namespaces of mounts: " << allowed.err;
  const std::string one = TEMPER_BINARY " train " + yaml() + " --output " + folder() + "/differ ";
  const Outcome outcome =
      shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --quiet --oversubscribe -n 1 " +
            one + " : -n 1 " + other + one + "--train.optimizer.lr 2e-3");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  expect_has(outcome.err, "temper: [ranks] rank 1 (on ");
  expect_has(outcome.err, ") has another configuration than rank 0");
}

}  // namespace
}  // namespace temper
