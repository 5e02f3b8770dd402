# TEMPER_CUDA: whether there is a CUDA compiler that works; where not, TEMPER_CUDA_REASON says why and what to do.
set(TEMPER_CUDA FALSE)
set(TEMPER_CUDA_REASON "no CUDA compiler: install a CUDA toolkit, put its nvcc on PATH, run make build")
if(TEMPER_FUZZ OR "nvcc" IN_LIST TEMPER_WITHOUT)
  return()
endif()
# A toolkit that is not on PATH is found where it is usually installed.
find_program(nvcc nvcc PATHS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(nvcc)
if(nvcc AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${nvcc})
endif()
# One that did not work when the folder was configured last may work now.
if(DEFINED ENV{CUDACXX} AND DEFINED CMAKE_CUDA_COMPILER AND NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  set(TEMPER_CUDA TRUE)
elseif(DEFINED ENV{CUDACXX})
  string(CONCAT TEMPER_CUDA_REASON "the CUDA compiler $ENV{CUDACXX} does not compile, the log in "
    "${CMAKE_BINARY_DIR}/CMakeFiles says why: mend it or put another nvcc on PATH, run make build")
endif()
