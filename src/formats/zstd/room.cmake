target_link_libraries(temper_lib PRIVATE zstd::libzstd_shared)
