#pragma once
// The one header that includes MPI's.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

namespace temper::collectives {

// MPI as this program uses it: opened when several ranks are asked for, so that a machine without MPI runs
// one rank. Only messages between pairs of ranks are used: of them it is known who has not answered.
struct Mpi {
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_dup) comm_dup;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Irecv) irecv;
  decltype(&MPI_Recv) recv;
  decltype(&MPI_Test) test;
  decltype(&MPI_Cancel) cancel;
  decltype(&MPI_Iprobe) iprobe;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Get_library_version) get_library_version;
  MPI_Comm world;
  MPI_Datatype byte;
  const char* version;  // "Open MPI 4.1.4"
};

// Opens it once. A kResources Error where it is missing, or of another major version than this program was
// built with: the handles of MPI's types are laid out by the library.
const Mpi& mpi();

}  // namespace temper::collectives
