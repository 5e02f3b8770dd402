# NCCL is opened at run time (library.cpp); only its headers are needed here.
target_include_directories(temper_gpu SYSTEM PRIVATE ${NcclHeaders_INCLUDE_DIRS})
