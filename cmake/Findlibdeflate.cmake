# libdeflate without its own package file: Debian's has none.
find_path(libdeflate_INCLUDE_DIR libdeflate.h)
find_library(libdeflate_LIBRARY deflate)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(libdeflate REQUIRED_VARS libdeflate_LIBRARY libdeflate_INCLUDE_DIR)
mark_as_advanced(libdeflate_INCLUDE_DIR libdeflate_LIBRARY)
