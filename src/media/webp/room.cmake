target_include_directories(temper_lib SYSTEM PRIVATE ${WebP_INCLUDE_DIR})
target_link_libraries(temper_lib PRIVATE ${WebP_DEMUX_LIBRARY} ${WebP_LIBRARY})
