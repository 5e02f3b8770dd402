target_link_libraries(temper_lib PRIVATE ${ArrowParquet_LIBRARIES})
# Only these two see Arrow's headers: with or without the room, everything else compiles the same.
list(TRANSFORM ArrowParquet_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE arrow_options)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/parquet.cpp ${CMAKE_CURRENT_LIST_DIR}/parquet_test.cpp
  DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES COMPILE_OPTIONS "${arrow_options}" SKIP_UNITY_BUILD_INCLUSION ON)
