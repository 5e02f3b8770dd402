target_link_libraries(temper_lib PRIVATE hwy::hwy)
