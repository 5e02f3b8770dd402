#include "collectives/launched.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/numbers.h"

namespace temper::collectives {
namespace {

// The variables of one launcher. srun's are those of a step: a batch script, which is one process, has none
// of them. Where no variable has the size, MPI itself asks the launcher for it; those stand last, as
// Open MPI, Slurm, Flux and PALS serve PMI or PMIx, too, and some of them tell their sizes. Hydra gives ranks
// that it connects by a port (-pmi-port, and MVAPICH's mpirun_rsh) a PMI_ID instead of PMI_RANK and PMI_SIZE.
struct Names {
  const char *launcher, *rank;
  const char *size = nullptr, *on_machine = nullptr;  // null: none
};
constexpr std::array kLaunchers{Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                Names{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                Names{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                Names{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                Names{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                Names{"MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
                                Names{"MPICH", "PMI_RANK", "PMI_SIZE"},
                                Names{"MPICH", "PMI_ID", nullptr, "MPI_LOCALNRANKS"},
                                Names{"PALS", "PALS_RANKID", nullptr, "PALS_LOCAL_SIZE"},
                                Names{"PMIx", "PMIX_RANK"}};

// Nothing where there is no such variable.
std::optional<int> number(const char* name) {
  const char* const text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const auto value = parse_integer_of<int>(text);
  if (value.value_or(-1) < 0)
    fail("[{}] is '{}', expected a number; start the ranks through mpirun or srun, which set it", name, text);
  return value;
}

}  // namespace

std::optional<Launched> launched() {
  bool is_one = false;  // a launcher says that it has started one rank
  for (const Names& names : kLaunchers) {
    const std::optional<int> rank = number(names.rank), size = number(names.size);
    if (!rank || (names.size != nullptr && !size)) continue;
    const int on_machine = number(names.on_machine).value_or(1);
    const bool others = size.value_or(std::max(*rank + 1, on_machine)) > 1;
    if (others || (!size && !is_one)) return Launched{*rank, size, names.launcher, on_machine};
    is_one = true;
  }
  return std::nullopt;
}

void check_all_are_seen(const Launched& launched, int rank, int size) {
  const int expected = launched.size.value_or(std::max(launched.rank + 1, launched.on_machine));
  if (launched.size ? size == expected : size >= expected && rank == launched.rank) return;
  fail(
      "[collectives] {} has started this process as rank {}{}, but MPI sees {} rank{}: it is not the MPI of "
      "that launcher; start the ranks through Open MPI's mpirun, srun --mpi=pmix, or temper's --ranks",
      launched.launcher, launched.rank, launched.size ? fmt::format(" of {}", *launched.size) : "", size,
      size == 1 ? "" : "s");
}

}  // namespace temper::collectives
