# The headers of NCCL only: its library is opened when several ranks have GPUs (collectives/nccl).
find_path(NcclHeaders_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
set(NcclHeaders_REASON "no headers of NCCL: install libnccl-dev, run make build")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NcclHeaders REASON_FAILURE_MESSAGE "${NcclHeaders_REASON}"
  REQUIRED_VARS NcclHeaders_INCLUDE_DIR)
set(NcclHeaders_INCLUDE_DIRS ${NcclHeaders_INCLUDE_DIR})
mark_as_advanced(NcclHeaders_INCLUDE_DIR)
