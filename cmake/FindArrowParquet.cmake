# Arrow and Parquet for C++: installed with their own package files, or fetched by tools/setup_parquet.sh.
find_package(Parquet QUIET CONFIG)
if(TARGET Parquet::parquet_shared)
  set(ArrowParquet_LIBRARIES Parquet::parquet_shared)
  get_target_property(ArrowParquet_INCLUDE_DIRS Parquet::parquet_shared INTERFACE_INCLUDE_DIRECTORIES)
else()
  set(ArrowParquet_INCLUDE_DIRS ${PROJECT_SOURCE_DIR}/.deps/arrow/include)
  file(GLOB ArrowParquet_LIBRARIES ${PROJECT_SOURCE_DIR}/.deps/arrow/lib/*.so.*)
endif()
set(ArrowParquet_REASON "no Arrow and Parquet libraries: run make setup-parquet && make build")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowParquet REASON_FAILURE_MESSAGE "${ArrowParquet_REASON}"
  REQUIRED_VARS ArrowParquet_LIBRARIES)
