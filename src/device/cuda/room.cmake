# The runtime is linked in and finds the driver when it is first used: the program starts where there is none.
target_link_libraries(temper_lib PUBLIC CUDA::cudart_static)
target_include_directories(temper_lib PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
