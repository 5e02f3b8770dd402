target_link_libraries(temper_lib PRIVATE DNNL::dnnl hwy::hwy)
# GCC 12 warns of what its own AVX-512 intrinsics leave undefined on purpose (GCC bug 105593).
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/tiles/avx512_few_rows.cpp ${CMAKE_CURRENT_LIST_DIR}/tiles/avx512_pack.cpp
                            ${CMAKE_CURRENT_LIST_DIR}/tiles/avx512_short_dots.cpp
                            ${CMAKE_CURRENT_LIST_DIR}/tiles/avx512_tile.cpp ${CMAKE_CURRENT_LIST_DIR}/tiles/avx2_tile.cpp
                            TARGET_DIRECTORY temper_lib
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-Wno-maybe-uninitialized;-Wno-uninitialized")
