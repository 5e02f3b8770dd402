# cuDNN is opened at run time (library.cpp); only its headers and those of its front end are needed here.
target_include_directories(temper_gpu SYSTEM PRIVATE ${CudnnFrontend_INCLUDE_DIRS})
# Little of its time is spent in it, much in compiling it.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/plan.cpp TARGET_DIRECTORY temper_gpu
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -Og)
