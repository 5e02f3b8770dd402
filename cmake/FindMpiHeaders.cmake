# The headers of Open MPI only: its library is opened when several ranks run (collectives/mpi).
find_path(MpiHeaders_INCLUDE_DIR mpi.h PATH_SUFFIXES x86_64-linux-gnu/openmpi/include
  PATHS /usr/lib/x86_64-linux-gnu/openmpi/include /usr/lib/aarch64-linux-gnu/openmpi/include)
set(MpiHeaders_REASON "no headers of Open MPI: run make setup && make build")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MpiHeaders REASON_FAILURE_MESSAGE "${MpiHeaders_REASON}"
  REQUIRED_VARS MpiHeaders_INCLUDE_DIR)
set(MpiHeaders_INCLUDE_DIRS ${MpiHeaders_INCLUDE_DIR})
mark_as_advanced(MpiHeaders_INCLUDE_DIR)
