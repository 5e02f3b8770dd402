#pragma once
#include <optional>
#include <string>

namespace temper::collectives {

// What a launcher (mpirun, srun) tells each process that it starts.
struct Launched {
  int rank = 0;
  std::optional<int> size = {};  // nothing where a launcher leaves it to MPI to ask
  std::string launcher;          // "Open MPI", "Slurm", "MPICH", "PMIx"
  int on_machine = 1;            // ranks on this machine; 1 where the launcher does not tell
};

// From the variables that Open MPI, Slurm's srun, Flux, jsrun, MPICH and its relatives (Intel MPI, MVAPICH),
// Cray's PALS and PMIx servers set. Nothing where no launcher has started this process, or it has started
// one rank only. An Error where a variable is not a number.
std::optional<Launched> launched();

// An Error where MPI, once it is open, sees other ranks than the launcher has started: it does not speak the
// launcher's language, and each process would train alone.
void check_all_are_seen(const Launched& launched, int rank, int size);

}  // namespace temper::collectives
