#include "collectives/launched.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/errors.h"

namespace temper::collectives {
namespace {

// The launchers' variables of this process, and then none of them.
class Launchers : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
          "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
          "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE",
          "PMI_RANK", "PMI_SIZE", "PMI_ID", "MPI_LOCALNRANKS", "PALS_RANKID", "PALS_LOCAL_SIZE", "PMIX_RANK"})
      ::unsetenv(name);
  }
};

TEST_F(Launchers, AreSeenByTheirVariables) {
  EXPECT_FALSE(launched());
  struct Case {
    const char *rank, *size, *launcher;
  };
  for (const Case& each : {Case{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"},
                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "Slurm"},
                           {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "Flux"},
                           {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "jsrun"},
                           {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH"},
                           {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVAPICH"},
                           {"PMI_RANK", "PMI_SIZE", "MPICH"},
                           {"PMI_ID", nullptr, "MPICH"},
                           {"PALS_RANKID", nullptr, "PALS"},
                           {"PMIX_RANK", nullptr, "PMIx"}}) {
    SCOPED_TRACE(each.launcher);
    clear();
    set(each.rank, "1");
    if (each.size != nullptr) {
      EXPECT_FALSE(launched()) << "a rank of unknown size";
      set(each.size, "4");
    }
    const auto found = launched();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 1);
    EXPECT_EQ(found->size, each.size != nullptr ? std::optional(4) : std::nullopt);
    EXPECT_EQ(found->launcher, each.launcher);
    set(each.rank, "one");
    EXPECT_EQ(
        error_of([] { launched(); }),
        fmt::format("[{}] is 'one', expected a number; start the ranks through mpirun or srun, which set it",
                    each.rank));
  }
}

// Open MPI and Slurm serve PMIx, too: what they say of the size counts.
TEST_F(Launchers, OneRankIsNoLaunch) {
  set("OMPI_COMM_WORLD_RANK", "0");
  set("OMPI_COMM_WORLD_SIZE", "1");
  set("PMIX_RANK", "0");
  EXPECT_FALSE(launched());
  set("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_EQ(launched()->launcher, "Open MPI");
}

// mpiexec.hydra -pmi-port in a session of srun: that is one process, and its launcher tells no size. The
// ranks of a machine are counted, and a rank has lower ones.
TEST_F(Launchers, OfUnknownSizeAreSeenWhereThereAreOtherRanks) {
  set("SLURM_PROCID", "0");
  set("SLURM_STEP_NUM_TASKS", "1");
  for (const auto& [rank, on_machine] :
       {std::pair{"PMI_ID", "MPI_LOCALNRANKS"}, {"PALS_RANKID", "PALS_LOCAL_SIZE"}}) {
    SCOPED_TRACE(rank);
    set(rank, "0");
    EXPECT_FALSE(launched());
    set(rank, "1");
    EXPECT_TRUE(launched());
    set(rank, "0");
    set(on_machine, "2");
    const auto found = launched();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->on_machine, 2);
    check_all_are_seen(*found, 0, 2);
    expect_has(error_of([&] { check_all_are_seen(*found, 0, 1); }),
               fmt::format("{} has started this process as rank 0, but MPI sees 1 rank: ", found->launcher));
    ::unsetenv(rank);
    ::unsetenv(on_machine);
  }
}

TEST_F(Launchers, ProcessesThatWouldBeAloneAreReported) {
  check_all_are_seen({1, 4, "MPICH"}, 1, 4);
  check_all_are_seen({1, {}, "PMIx"}, 1, 4);
  check_all_are_seen({0, {}, "PMIx"}, 0, 1);
  EXPECT_EQ(error_of([] {
              check_all_are_seen({1, 4, "MPICH"}, 0, 1);
            }),
            "[collectives] MPICH has started this process as rank 1 of 4, but MPI sees 1 rank: it is not the "
            "MPI of that launcher; start the ranks through Open MPI's mpirun, srun --mpi=pmix, or temper's "
            "--ranks");
  expect_has(error_of([] {
               check_all_are_seen({2, {}, "PMIx"}, 0, 1);
             }),
             "PMIx has started this process as rank 2, but MPI sees 1 rank:");
}

}  // namespace
}  // namespace temper::collectives
