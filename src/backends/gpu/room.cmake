target_link_libraries(temper_lib PUBLIC CUDA::cudart_static)
target_include_directories(temper_lib PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
