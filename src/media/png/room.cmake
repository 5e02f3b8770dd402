target_link_libraries(temper_lib PRIVATE PNG::PNG)
