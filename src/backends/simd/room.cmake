target_link_libraries(temper_lib PRIVATE hwy::hwy)
# Three targets are enough (plain C++, AVX2, AVX-512) and keep compile time low.
target_compile_definitions(temper_lib PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")

# Except for bfloat16, its results are those of `eager` bit by bit: the compiler may not fuse two operations of the
# source. A precompiled header would bring its own options for functions of other targets.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/adamw.cpp TARGET_DIRECTORY temper_lib
  PROPERTIES COMPILE_OPTIONS -ffp-contract=off SKIP_PRECOMPILE_HEADERS ON)
