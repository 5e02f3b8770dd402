#include "collectives/launched.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/numbers.h"

namespace temper::collectives {
namespace {

// The variables of one launcher. srun's are those of a step: a batch script, which is one process, has none
// of them. A PMIx server tells no size by variables; MPI itself asks it. It stands last: Open MPI and Slurm
// are PMIx servers, too, and their sizes are known.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;  // null: none
};
constexpr std::array<Names, 4> kLaunchers = {{{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                              {"MPICH", "PMI_RANK", "PMI_SIZE"},
                                              {"PMIx", "PMIX_RANK", nullptr}}};

std::optional<int> number(const char* name) {
  const char* const text = std::getenv(name);
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
    const std::optional<int> rank = number(names.rank),
                             size = names.size == nullptr ? std::nullopt : number(names.size);
    if (!rank || (names.size != nullptr && !size)) continue;
    if (size ? *size > 1 : !is_one) return Launched{*rank, size, names.launcher};
    is_one = true;
  }
  return std::nullopt;
}

void check_all_are_seen(const Launched& launched, int rank, int size) {
  const int expected = launched.size.value_or(launched.rank + 1);
  if (launched.size ? size == expected : size >= expected && rank == launched.rank) return;
  fail(
      "[collectives] {} has started this process as rank {}{}, but MPI sees {} rank{}: it is not the MPI of "
      "that "
      "launcher; start the ranks through Open MPI's mpirun, srun --mpi=pmix, or temper's --ranks",
      launched.launcher, launched.rank, launched.size ? fmt::format(" of {}", *launched.size) : "", size,
      size == 1 ? "" : "s");
}

}  // namespace temper::collectives
