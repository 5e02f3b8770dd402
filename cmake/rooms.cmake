# The one door into the build. Every folder under src/ is either one floor (add_floor), whose sub-folders, if any, are
# stages (tools/layers.toml), or a kind whose sub-folders are rooms (add_kind + add_room). Files named *_test.cpp go to
# the tests of their folder, *_bench.cpp to the benchmarks, everything else into the library.

# With TEMPER_UNITY neighbours in a folder are compiled together, four at a time: most of a file's cost is what it
# shares with the others. A new file moves only its folder's groups.
function(temper_group_sources target)
  foreach(source ${ARGN})
    cmake_path(GET source PARENT_PATH place)
    string(MAKE_C_IDENTIFIER ${place} place)
    if(NOT DEFINED count_${place})
      set(count_${place} 0)
    endif()
    math(EXPR group "${count_${place}} / 4")
    math(EXPR count_${place} "${count_${place}} + 1")
    set(properties UNITY_GROUP ${place}_${group})
    # Highway compiles a file once per target by including it again: such files stand alone.
    file(STRINGS ${source} alone REGEX "foreach_target" LIMIT_COUNT 1)
    if(alone)
      set(properties SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES ${properties})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TEMPER_UNITY} UNITY_BUILD_MODE GROUP)
endfunction()

# Distributes sources over the library, the folder's tests and the benchmarks. Two kinds of code are optimised less, in
# libraries of their own that become a part of the library: what that costs a build it would never pay back. ONCE: the
# folder's code runs once a run, or once an update. CALLS: it calls kernels, and the time is theirs.
function(temper_add_sources folder)
  cmake_parse_arguments(folder "ONCE;CALLS" "" "" ${ARGN})
  set(library "")
  foreach(source ${folder_UNPARSED_ARGUMENTS})
    if(source MATCHES "_test\\.cpp$")
      set_property(GLOBAL APPEND PROPERTY temper_tests_${folder} ${source})
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
  endif()
  target_sources(${target} PRIVATE ${library})
  temper_group_sources(${target} ${library})
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

# *.cu, where there is a compiler for them; `architectures`: of the GPUs that they are compiled for where these are not
# TEMPER_CUDA_ARCHITECTURES.
function(temper_add_device_code folder architectures)
  if(NOT CMAKE_CUDA_COMPILER)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu)
  if(TEMPER_UNITY AND EXISTS ${folder}/device_code.cmake)
    include(${folder}/device_code.cmake)
    temper_group_device_code(${folder} "${device_code_together}" sources)
  endif()
  if(NOT architectures)
    target_sources(temper_lib PRIVATE ${sources})
    return()
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

# A folder inside a kind; `built` becomes whether its packages are there.
# "nvcc" stands for a CUDA compiler. A folder whose package is missing is skipped with one status line, never with an
# #ifdef; the line is <package>_REASON where the package's find module has set that.
# DEVICE_CODE names the architectures of *.cu that are for some GPUs alone.
# LOOPS: the room is optimised in full where its kind is ONCE or CALLS.
# <name>/room.cmake, where there is one, sees the packages and links libraries to temper_lib.
function(temper_add_folder name built)
  cmake_parse_arguments(room "LOOPS" "" "NEEDS;DEVICE_CODE" ${ARGN})
  set(${built} FALSE PARENT_SCOPE)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME kind)
  foreach(package ${room_NEEDS})
    if(package STREQUAL "nvcc")
      if(NOT CMAKE_CUDA_COMPILER)
        message(STATUS "${kind}/${name}: skipped (no CUDA compiler)")
        return()
      endif()
      continue()
    endif()
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
      set(reason "no ${package}")
      if(${package}_REASON)
        set(reason "${${package}_REASON}")
      endif()
      message(STATUS "${kind}/${name}: skipped (${reason})")
      return()
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  temper_add_device_code(${CMAKE_CURRENT_SOURCE_DIR}/${name} "${room_DEVICE_CODE}")
  get_property(pace GLOBAL PROPERTY temper_pace_${kind})
  if(room_LOOPS)
    set(pace "")
  endif()
  temper_add_sources(${kind} ${pace} ${sources})
  include(${CMAKE_CURRENT_SOURCE_DIR}/${name}/room.cmake OPTIONAL)
  set(${built} TRUE PARENT_SCOPE)
endfunction()

# add_room(<name> [LOOPS] [NEEDS <package>...] [DEVICE_CODE <architecture>...]), called from src/<kind>/CMakeLists.txt.
function(add_room name)
  temper_add_folder(${name} built ${ARGN})
  if(built)
    cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME kind)
    set_property(GLOBAL APPEND PROPERTY temper_rooms_${kind} ${name})
  endif()
endfunction()

# add_shared(<name> ...), as add_room: a folder that rooms of the kind include (tools/layers.toml); it registers nothing.
function(add_shared name)
  temper_add_folder(${name} built ${ARGN})
endfunction()

# Enters src/<kind>: its own files, its rooms, and the generated call list temper::<kind>::register_all(); none for a
# PLAIN kind, whose rooms are included by those who want them. ONCE, CALLS: as temper_add_sources has them, for all rooms.
function(add_kind kind)
  cmake_parse_arguments(kind "PLAIN" "" "" ${ARGN})
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

# One test program per folder that has tests; every TEST becomes one ctest entry.
function(temper_add_tests)
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
  add_library(temper_test_support STATIC ${support} ${PROJECT_SOURCE_DIR}/tests/main.cpp)
  target_include_directories(temper_test_support PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(temper_test_support PUBLIC temper_lib GTest::gtest)
  get_property(backends GLOBAL PROPERTY temper_rooms_backends)
  list(JOIN backends "," backends)
  target_compile_definitions(temper_test_support PUBLIC TEMPER_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    TEMPER_BACKENDS="${backends}")
  # Tests are compiled more often than they run: little optimisation, and their headers only once.
  target_compile_options(temper_test_support PUBLIC -Og)
  target_precompile_headers(temper_test_support PRIVATE <gtest/gtest.h> <algorithm> <fmt/core.h> <functional> <map>
    <memory> <optional> <string> <unordered_map> <vector>)
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
  temper_group_sources(${name} ${ARGN})
  set(environment "")
  if(TEMPER_SANITIZE MATCHES "thread")
    set(environment ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}." PROPERTIES TIMEOUT 600 ${environment})
endfunction()
