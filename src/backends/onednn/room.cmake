target_link_libraries(temper_lib PRIVATE DNNL::dnnl hwy::hwy)
