# The one door into the build. Every folder under src/ is either one floor (add_floor), whose sub-folders, if any, are
# stages (tools/layers.toml), or a kind whose sub-folders are rooms (add_kind + add_room). Files named *_test.cpp go to
# the tests of their folder, *_bench.cpp to the benchmarks, everything else into the library.

# With TEMPER_UNITY neighbours are compiled together: most of a file's cost is what it shares with the others. What is left
# of a folder joins what is left of its neighbour folders, since most rooms have a file or two; not in a kind whose rooms
# use the same names (ALIKE), nor in tests. A new file moves its folder's groups and those that share what is left.
function(temper_group_sources target)
  cmake_parse_arguments(group "TESTS" "" "" ${ARGN})
  set(most 6)
  if(group_TESTS)
    set(most 4)
  endif()
  set(places "")
  foreach(source ${group_UNPARSED_ARGUMENTS})
    # Highway compiles a file once per target by including it again: such files stand alone.
    file(STRINGS ${source} alone REGEX "foreach_target" LIMIT_COUNT 1)
    if(alone)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    cmake_path(GET source PARENT_PATH place)
    string(MAKE_C_IDENTIFIER ${place} key)
    list(APPEND places ${place})
    list(APPEND files_${key} ${source})
  endforeach()
  list(REMOVE_DUPLICATES places)
  foreach(place ${places})
    string(MAKE_C_IDENTIFIER ${place} key)
    list(LENGTH files_${key} left)
    set(number 0)
    while(left GREATER_EQUAL most OR (group_TESTS AND left GREATER 0))
      list(SUBLIST files_${key} 0 ${most} together)
      list(REMOVE_ITEM files_${key} ${together})
      temper_compile_together(${target} ${key}_${number} ${together})
      math(EXPR number "${number} + 1")
      math(EXPR left "${left} - ${most}")
    endwhile()
    if(left GREATER 0)
      temper_compile_with_siblings(${target} ${most} ${place} ${files_${key}})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TEMPER_UNITY} UNITY_BUILD_MODE GROUP)
endfunction()

function(temper_compile_together target group)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
endfunction()

# In the group that neighbour folders of `place` have begun, until that has `most` files.
function(temper_compile_with_siblings target most place)
  cmake_path(GET place PARENT_PATH above)
  cmake_path(GET above FILENAME kind)
  get_property(alike GLOBAL PROPERTY temper_alike_${kind})
  if(alike)
    set(above ${place})
  endif()
  string(MAKE_C_IDENTIFIER ${above} above)
  get_property(count GLOBAL PROPERTY temper_left_${target}_${above})
  if(NOT count)
    set(count 0)
  endif()
  math(EXPR number "${count} / ${most}")
  temper_compile_together(${target} left_${above}_${number} ${ARGN})
  list(LENGTH ARGN more)
  math(EXPR count "${count} + ${more}")
  set_property(GLOBAL PROPERTY temper_left_${target}_${above} ${count})
endfunction()

# Distributes sources over the library, the folder's tests and the benchmarks. Two kinds of code are optimized less, in
# libraries of their own that become a part of the library: what that costs a build it would never pay back. ONCE: the
# folder's code runs once a run, or once an update. CALLS: it calls kernels, and the time is theirs. GPU: the folder sees
# CUDA's headers, and no other does: a build without them compiles the rest alike.
function(temper_add_sources folder)
  cmake_parse_arguments(folder "ONCE;CALLS;GPU" "" "" ${ARGN})
  set(library "")
  set(tests temper_tests)
  if(folder_GPU)
    set(tests temper_gpu_tests)
  endif()
  foreach(source ${folder_UNPARSED_ARGUMENTS})
    if(source MATCHES "_test\\.cpp$")
      set_property(GLOBAL APPEND PROPERTY ${tests}_${folder} ${source})
      set_property(GLOBAL APPEND PROPERTY temper_test_folders ${folder})
    elseif(source MATCHES "_bench\\.cpp$")
      set_property(GLOBAL APPEND PROPERTY temper_benches ${source})
    else()
      list(APPEND library ${source})
    endif()
  endforeach()
  set(target temper_lib)
  if(folder_ONCE)
    set(target temper_once)
  elseif(folder_CALLS)
    set(target temper_calls)
  elseif(folder_GPU)
    set(target temper_gpu)
  endif()
  target_sources(${target} PRIVATE ${library})
  if(folder IN_LIST TEMPER_COVERAGE)
    set_source_files_properties(${library} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "--coverage;-O0")
  else()
    temper_group_sources(${target} ${library})
  endif()
endfunction()

# Device code whose cost is what it includes: the files of each list, separated by commas, are compiled as one. A room says
# so in device_code.cmake, for files that take a few seconds each; names in them differ, as those of neighbours do.
function(temper_group_device_code folder groups listed)
  cmake_path(GET folder FILENAME room)
  set(alone ${${listed}})
  set(number 0)
  foreach(group ${groups})
    string(REPLACE "," ";" members ${group})
    set(text "")
    foreach(member ${members})
      list(REMOVE_ITEM alone ${folder}/${member}.cu)
      string(APPEND text "#include \"${folder}/${member}.cu\"\n")
    endforeach()
    set(together ${CMAKE_BINARY_DIR}/generated/${room}_${number}.cu)
    file(CONFIGURE OUTPUT ${together} CONTENT "${text}" @ONLY)
    list(APPEND alone ${together})
    math(EXPR number "${number} + 1")
  endforeach()
  set(${listed} ${alone} PARENT_SCOPE)
endfunction()

# *.cu and what more patterns name, where there is a compiler for them; `architectures`: of the GPUs that they are compiled for where these are not
# TEMPER_CUDA_ARCHITECTURES.
function(temper_add_device_code folder architectures)
  if(NOT TEMPER_CUDA)
    return()
  endif()
  list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE more)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu ${more})
  if(TEMPER_UNITY AND EXISTS ${folder}/device_code.cmake)
    include(${folder}/device_code.cmake)
    temper_group_device_code(${folder} "${device_code_together}" sources)
  endif()
  if(NOT architectures)
    target_sources(temper_lib PRIVATE ${sources})
    return()
  endif()
  if(TEMPER_FAST_DEVICE_CODE)
    string(REPLACE "-real" "-virtual" architectures "${architectures}")
  endif()
  cmake_path(GET folder FILENAME name)
  add_library(temper_device_code_${name} OBJECT ${sources})
  set_target_properties(temper_device_code_${name} PROPERTIES CUDA_ARCHITECTURES ${architectures})
  target_include_directories(temper_device_code_${name} PRIVATE $<TARGET_PROPERTY:temper_lib,INCLUDE_DIRECTORIES>)
  target_compile_options(temper_device_code_${name} PRIVATE $<TARGET_PROPERTY:temper_lib,COMPILE_OPTIONS>)
  target_sources(temper_lib PRIVATE $<TARGET_OBJECTS:temper_device_code_${name}>)
endfunction()

# A floor without rooms: all of src/<folder>/**/*.cpp. ONCE, CALLS: as temper_add_sources has them.
function(add_floor folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cpp)
  temper_add_device_code(${PROJECT_SOURCE_DIR}/src/${folder} "")
  temper_add_sources(${folder} ${ARGN} ${sources})
endfunction()

# Whether `package` is here. Where it is not `reason` says so and names the command that brings it: <package>_REASON where
# the package's find module has set that. "nvcc" means a CUDA compiler. What TEMPER_WITHOUT names is taken as missing.
function(temper_find package found reason)
  set(${found} FALSE PARENT_SCOPE)
  if(package IN_LIST TEMPER_WITHOUT)
    set(${reason} "configured without ${package}: run cmake --preset release -DTEMPER_WITHOUT= && make build" PARENT_SCOPE)
    return()
  endif()
  if(package STREQUAL "nvcc")
    set(${found} ${TEMPER_CUDA} PARENT_SCOPE)
    set(${reason} "${TEMPER_CUDA_REASON}" PARENT_SCOPE)
    return()
  endif()
  find_package(${package} QUIET)
  set(${found} ${${package}_FOUND} PARENT_SCOPE)
  set(${reason} "no ${package}: run make setup && make build" PARENT_SCOPE)
  if(${package}_REASON)
    set(${reason} "${${package}_REASON}" PARENT_SCOPE)
  endif()
endfunction()

# A folder inside a kind; `built` becomes whether its packages are there, `missing` the reason where one is not. A folder
# whose package is missing is skipped, never with an #ifdef.
# DEVICE_CODE names the architectures of *.cu that are for some GPUs alone.
# LOOPS: the room is optimized in full where its kind is ONCE or CALLS.
# <name>/room.cmake, where there is one, sees the packages and links libraries to temper_lib. Sources of folders that need
# CUDAToolkit are in temper_gpu.
function(temper_add_folder name built missing)
  cmake_parse_arguments(room "LOOPS" "" "NEEDS;DEVICE_CODE" ${ARGN})
  set(${built} FALSE PARENT_SCOPE)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME kind)
  foreach(package ${room_NEEDS})
    temper_find(${package} found reason)
    if(NOT found)
      set(${missing} "${reason}" PARENT_SCOPE)
      return()
    endif()
    # In this scope: the folder's room.cmake links what it found.
    if(NOT package STREQUAL "nvcc")
      find_package(${package} QUIET)
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp)
  temper_add_device_code(${CMAKE_CURRENT_SOURCE_DIR}/${name} "${room_DEVICE_CODE}" */*.cu)
  get_property(pace GLOBAL PROPERTY temper_pace_${kind})
  if(room_LOOPS)
    set(pace "")
  endif()
  if("CUDAToolkit" IN_LIST room_NEEDS)
    set(pace GPU)
  endif()
  temper_add_sources(${kind} ${pace} ${sources})
  include(${CMAKE_CURRENT_SOURCE_DIR}/${name}/room.cmake OPTIONAL)
  set(${built} TRUE PARENT_SCOPE)
endfunction()

# add_room(<name> [LOOPS] [NEEDS <package>...] [DEVICE_CODE <architecture>...]), called from src/<kind>/CMakeLists.txt.
function(add_room name)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME kind)
  set(missing "")
  temper_add_folder(${name} built missing ${ARGN})
  if(built)
    set_property(GLOBAL APPEND PROPERTY temper_rooms_${kind} ${name})
  else()
    message(STATUS "${kind}/${name}: left out (${missing})")
    set_property(GLOBAL APPEND PROPERTY temper_left_out "${kind}/${name}: ${missing}")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY temper_room_list "      {\"${kind}\", \"${name}\", \"${missing}\"},\n")
endfunction()

# add_shared(<name> ...), as add_room: a folder that rooms of the kind include (tools/layers.toml); it registers nothing.
function(add_shared name)
  temper_add_folder(${name} built missing ${ARGN})
endfunction()

# What the build has and what it left out: for the program (base/parts/rooms.h), and for the end of `make build`.
function(temper_write_rooms)
  get_property(rooms GLOBAL PROPERTY temper_room_list)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/rooms.cpp @ONLY CONTENT
"// Generated from the rooms of src/*/CMakeLists.txt.
#include \"base/parts/rooms.h\"
namespace temper {
const std::vector<Room>& rooms_of_build() {
  static const std::vector<Room> rooms{
${rooms}  };
  return rooms;
}
}  // namespace temper
")
  target_sources(temper_lib PRIVATE ${CMAKE_BINARY_DIR}/generated/rooms.cpp)
  get_property(left_out GLOBAL PROPERTY temper_left_out)
  list(JOIN left_out "\n" text)
  if(text)
    string(APPEND text "\n")
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/left_out.txt "${text}")
endfunction()

# The call list of a kind whose files register themselves, written by the build (cmake/kernels.cmake).
function(temper_list_files kind)
  set(folder ${PROJECT_SOURCE_DIR}/src/${kind})
  set(list ${CMAKE_BINARY_DIR}/generated/register_${kind}.cpp)
  set(sources "")
  foreach(room ${ARGN})
    file(GLOB files CONFIGURE_DEPENDS ${folder}/${room}/*.cpp ${folder}/${room}/*.cu ${folder}/${room}/*/*.cpp
         ${folder}/${room}/*/*.cu)
    list(APPEND sources ${files})
  endforeach()
  list(JOIN ARGN "," rooms)
  list(LENGTH sources count) # in the command, which runs again when a file is gone
  add_custom_command(OUTPUT ${list}
    COMMAND ${CMAKE_COMMAND} -D KIND=${kind} -D FOLDER=${folder} -D ROOMS=${rooms} -D OUTPUT=${list} -D FILES=${count}
      -P ${PROJECT_SOURCE_DIR}/cmake/kernels.cmake
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/kernels.cmake ${sources} COMMENT "Listing what src/${kind} registers" VERBATIM)
  # A library of its own: nothing that temper_lib is made of must be built before the list is written.
  add_library(temper_list_${kind} OBJECT ${list})
  target_compile_options(temper_list_${kind} PRIVATE $<TARGET_PROPERTY:temper_lib,COMPILE_OPTIONS>)
  target_sources(temper_lib PRIVATE $<TARGET_OBJECTS:temper_list_${kind}>)
endfunction()

# Enters src/<kind>: its own files, its rooms, and the generated call list temper::<kind>::register_all(); none for a
# PLAIN kind, whose rooms are included by those who want them. ONCE, CALLS: as temper_add_sources has them, for all rooms.
# ALIKE: as temper_group_sources has it. BY_FILE: each file of a room registers itself, not each room.
function(add_kind kind)
  cmake_parse_arguments(kind "PLAIN;ALIKE;BY_FILE" "" "" ${ARGN})
  set_property(GLOBAL PROPERTY temper_alike_${kind} ${kind_ALIKE})
  set(pace ${kind_UNPARSED_ARGUMENTS})
  set_property(GLOBAL PROPERTY temper_pace_${kind} ${pace})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${kind}/*.cpp)
  temper_add_device_code(${PROJECT_SOURCE_DIR}/src/${kind} "")
  temper_add_sources(${kind} ${pace} ${sources})
  add_subdirectory(src/${kind})
  if(kind_PLAIN)
    return()
  endif()
  get_property(names GLOBAL PROPERTY temper_rooms_${kind})
  if(kind_BY_FILE)
    temper_list_files(${kind} ${names})
    return()
  endif()
  set(declarations "")
  set(calls "")
  foreach(name ${names})
    string(APPEND declarations "void register_${name}();\n")
    string(APPEND calls "  register_${name}();\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/register_${kind}.cpp @ONLY CONTENT
"// Generated from src/${kind}/CMakeLists.txt.
namespace temper::${kind} {
${declarations}
void register_all();
void register_all() {
${calls}}
}  // namespace temper::${kind}
")
  target_sources(temper_lib PRIVATE ${CMAKE_BINARY_DIR}/generated/register_${kind}.cpp)
endfunction()

# One test program per folder that has tests; every suite becomes one entry of ctest (cmake/suites.cmake).
function(temper_add_tests)
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
  add_library(temper_test_support STATIC ${support} ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_include_directories(temper_test_support PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(temper_test_support PUBLIC temper_lib GTest::gtest)
  target_compile_definitions(temper_test_support PUBLIC TEMPER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Tests are compiled more often than they run: little optimization, and their headers only once.
  target_compile_options(temper_test_support PUBLIC -Og)
  target_precompile_headers(temper_test_support PRIVATE <gtest/gtest.h> ${TEMPER_OFTEN_INCLUDED})
  get_property(folders GLOBAL PROPERTY temper_test_folders)
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    get_property(sources GLOBAL PROPERTY temper_tests_${folder})
    temper_add_test_program(test_${folder} ${sources})
  endforeach()
endfunction()

function(temper_add_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE temper_test_support)
  target_precompile_headers(${name} REUSE_FROM temper_test_support)
  temper_group_sources(${name} TESTS ${ARGN})
  string(REGEX REPLACE "^test_" "" folder ${name})
  get_property(gpu_tests GLOBAL PROPERTY temper_gpu_tests_${folder})
  if(gpu_tests)
    add_library(${name}_gpu OBJECT ${gpu_tests})
    target_link_libraries(${name}_gpu PRIVATE temper_test_support)
    target_include_directories(${name}_gpu SYSTEM PRIVATE $<TARGET_PROPERTY:temper_gpu,INCLUDE_DIRECTORIES>)
    target_precompile_headers(${name}_gpu REUSE_FROM temper_test_support)
    temper_group_sources(${name}_gpu TESTS ${gpu_tests})
    target_link_libraries(${name} PRIVATE ${name}_gpu)
  endif()
  # Of test_cli, whose tests are runs of the program, one takes about three seconds.
  set(cost 1)
  if(name STREQUAL "test_cli")
    set(cost 3)
  endif()
  set(environment "")
  if(TEMPER_SANITIZE MATCHES "thread")
    set(environment "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp")
  elseif(TEMPER_SANITIZE MATCHES "address")
    # Tests preload libraries that let calls fail.
    set(environment "LSAN_OPTIONS=print_suppressions=0:suppressions=${PROJECT_SOURCE_DIR}/tools/lsan.supp:$ENV{LSAN_OPTIONS};ASAN_OPTIONS=verify_asan_link_order=0:$ENV{ASAN_OPTIONS}")
  endif()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake CONTENT
"set(PROGRAM $<TARGET_FILE:${name}>)
set(NAME ${name})
set(COST ${cost})
set(ENVIRONMENT \"${environment}\")
include(${PROJECT_SOURCE_DIR}/cmake/suites.cmake)
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
endfunction()
