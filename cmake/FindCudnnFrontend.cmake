# Headers only: cuDNN's front end, which tools/setup_gpu.sh fetches, and cuDNN 9's own from the CUDA toolkit.
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${PROJECT_SOURCE_DIR}/.deps/cudnn_frontend/include)
find_path(CudnnFrontend_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT CudnnFrontend_INCLUDE_DIR)
  set(CudnnFrontend_REASON "cudnn_frontend.h is missing: run make setup-gpu && make build")
elseif(NOT CudnnFrontend_CUDNN_INCLUDE_DIR)
  set(CudnnFrontend_REASON "the headers of cuDNN 9 are missing: install cuDNN 9 for this CUDA toolkit, run make build")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudnnFrontend REASON_FAILURE_MESSAGE "${CudnnFrontend_REASON}"
  REQUIRED_VARS CudnnFrontend_INCLUDE_DIR CudnnFrontend_CUDNN_INCLUDE_DIR)
set(CudnnFrontend_INCLUDE_DIRS ${CudnnFrontend_INCLUDE_DIR} ${CudnnFrontend_CUDNN_INCLUDE_DIR})
mark_as_advanced(CudnnFrontend_INCLUDE_DIR CudnnFrontend_CUDNN_INCLUDE_DIR)
