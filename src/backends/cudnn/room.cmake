# cuDNN is opened at run time (library.cpp); only its headers and those of its front end are needed here.
target_include_directories(temper_lib SYSTEM PRIVATE ${CudnnFrontend_INCLUDE_DIRS})
target_link_libraries(temper_lib PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
# Little of its time is spent in it, much in compiling it.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/plan.cpp TARGET_DIRECTORY temper_lib
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -O1)

# Instructions of compute capability 9.0 alone, which are neither in older nor in newer GPUs.
file(GLOB hopper CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/hopper/*.cu)
add_library(temper_hopper OBJECT ${hopper})
set_target_properties(temper_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
target_include_directories(temper_hopper PRIVATE $<TARGET_PROPERTY:temper_lib,INCLUDE_DIRECTORIES>)
target_compile_options(temper_hopper PRIVATE $<TARGET_PROPERTY:temper_lib,COMPILE_OPTIONS>)
target_sources(temper_lib PRIVATE $<TARGET_OBJECTS:temper_hopper>)
