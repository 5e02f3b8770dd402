target_include_directories(temper_lib SYSTEM PRIVATE ${libdeflate_INCLUDE_DIR})
target_link_libraries(temper_lib PRIVATE PNG::PNG ${libdeflate_LIBRARY})
