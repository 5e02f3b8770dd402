# MPI is opened at run time (library.cpp). Only these see its headers: with or without the room, everything else compiles
# the same.
list(TRANSFORM MpiHeaders_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE mpi_options)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/library.cpp ${CMAKE_CURRENT_LIST_DIR}/network.cpp
  DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES COMPILE_OPTIONS "${mpi_options}" SKIP_UNITY_BUILD_INCLUSION ON)
