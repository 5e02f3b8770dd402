# oneDNN without its own package file: Debian's demands the OpenCL headers, which the CPU engine does not need.
find_path(dnnl_INCLUDE_DIR dnnl.hpp)
find_library(dnnl_LIBRARY dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR)
if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${dnnl_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${dnnl_INCLUDE_DIR})
endif()
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)
