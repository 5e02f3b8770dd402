target_link_libraries(temper_lib PRIVATE ${CMAKE_DL_LIBS})
