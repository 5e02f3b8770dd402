target_link_libraries(temper_lib PRIVATE hwy::hwy)
# Three targets are enough (plain C++, AVX2, AVX-512) and keep compile time low.
target_compile_definitions(temper_lib PRIVATE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
