#pragma once
#include <optional>
#include <string>

namespace temper::collectives {

// What a launcher (mpirun, srun) tells each process that it starts.
struct Launched {
  int rank = 0, size = 1;
  int local_rank = 0;    // among the ranks of this machine: which of its GPUs is this rank's
  std::string launcher;  // "Open MPI", "Slurm"
};

// From the variables that Open MPI, Slurm's srun and PMIx set. Nothing where no launcher has started this
// process, or it has started one rank only. An Error where a variable is not a number.
std::optional<Launched> launched();

}  // namespace temper::collectives
