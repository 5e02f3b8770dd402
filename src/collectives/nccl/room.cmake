# NCCL is opened at run time (library.cpp); only its headers are needed here.
target_include_directories(temper_lib SYSTEM PRIVATE ${NcclHeaders_INCLUDE_DIRS})
target_link_libraries(temper_lib PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
