# Run by the build: writes OUTPUT, the list of all functions that the files of a kind's rooms register their content with
# (add_kind(... BY_FILE) in rooms.cmake). A file of the room `simd` registers its kernels in `void register_simd_FILE() {`,
# which begins a line; src/KIND/ROOM/ROOM.cpp, where there is one, has `void register_ROOM() {` and comes first. The other
# files follow by name, the rooms in the order of ROOMS, so every build registers in the same order. The calls are
# ordinary ones: the linker keeps what they name, and reports what is missing.
# FOLDER: src/KIND. KIND: its name, that of its namespace. ROOMS: separated by commas. Only a list that differs is written.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" rooms "${ROOMS}")
set(declarations "")
set(calls "")
foreach(room ${rooms})
  file(GLOB sources ${FOLDER}/${room}/*.cpp ${FOLDER}/${room}/*.cu ${FOLDER}/${room}/*/*.cpp ${FOLDER}/${room}/*/*.cu)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(SORT sources COMPARE FILE_BASENAME)
  if(EXISTS ${FOLDER}/${room}/${room}.cpp)
    list(REMOVE_ITEM sources ${FOLDER}/${room}/${room}.cpp)
    list(PREPEND sources ${FOLDER}/${room}/${room}.cpp)
  endif()
  foreach(source ${sources})
    file(STRINGS ${source} lines REGEX "^(namespace temper::${KIND}[a-z_:]* |void register_[a-z0-9_]+\\(\\) ){")
    foreach(line ${lines})
      if(line MATCHES "^namespace ([a-z_:]+)")
        set(namespace ${CMAKE_MATCH_1})
        continue()
      endif()
      string(REGEX MATCH "register_[a-z0-9_]+" name "${line}")
      if(NOT name STREQUAL "register_${room}" AND NOT name MATCHES "^register_${room}_")
        message(FATAL_ERROR "${source}: ${name}() is not called: what registers here must be named register_${room}_…")
      endif()
      string(APPEND declarations "namespace ${namespace} { void ${name}(); }\n")
      string(APPEND calls "  ::${namespace}::${name}();\n")
    endforeach()
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Generated from the files of src/${KIND}.
${declarations}
namespace temper::${KIND} {
void register_all();
void register_all() {
${calls}}
}  // namespace temper::${KIND}
")
