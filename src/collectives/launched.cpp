#include "collectives/launched.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace temper::collectives {
namespace {

// The variables of one launcher. srun's are those of a step: a batch script, which is one process, has none
// of them. A PMIx server tells no size by variables; MPI itself asks it.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr std::array<Names, 2> kLaunchers = {
    {{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}}};

std::optional<int> number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    fail("[{}] is '{}', expected a number; start the ranks through mpirun or srun, which set it", name, text);
  return value;
}

}  // namespace

std::optional<Launched> launched() {
  for (const Names& names : kLaunchers) {
    const std::optional<int> rank = number(names.rank), size = number(names.size);
    if (!rank || !size || *size < 2) continue;
    return Launched{*rank, *size, number(names.local_rank).value_or(0), names.launcher};
  }
  return std::nullopt;
}

}  // namespace temper::collectives
