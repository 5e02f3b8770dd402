target_include_directories(temper_lib PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
