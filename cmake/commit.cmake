# cmake -D SOURCE=… -D HEADER=… -P commit.cmake: writes the commit of the source into HEADER, "" where SOURCE is no git
# checkout of its own. The file changes only when the commit does, so that a build recompiles nothing else.
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=12 --exclude=* --dirty=+changes
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} @ONLY CONTENT "#pragma once\n#define TEMPER_COMMIT \"${commit}\"\n")
