# Read by ctest when it starts: one entry for each suite of a program's tests, so that what a suite prepares is prepared
# once, and a program of many short tests starts a few dozen times instead of a few hundred. PROGRAM: its path. NAME:
# what its entries begin with. COST: about how many seconds a test takes; long suites begin first. ENVIRONMENT: of all. Suites
# whose names begin with Nightly have the label of `make nightly`. A program returns 77 where all of its tests were skipped
# and none failed (tests/main.cpp).
if(NOT EXISTS ${PROGRAM})
  add_test(${NAME}.IsNotBuilt ${PROGRAM})
  return()
endif()
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${failed}")
endif()
string(REGEX REPLACE " *#[^\n]*" "" listed "${listed}")
string(REPLACE "\n" ";" listed "${listed}")

macro(add_suite)
  if(suite AND NOT suite MATCHES "^DISABLED_")
    math(EXPR cost "${COST} * ${tests}")
    add_test("${NAME}.${suite}" ${PROGRAM} "--gtest_filter=${suite}.*")
    set_tests_properties("${NAME}.${suite}" PROPERTIES TIMEOUT 1800 COST ${cost} ENVIRONMENT "${ENVIRONMENT}"
      SKIP_RETURN_CODE 77)
    if(suite MATCHES "^Nightly")
      set_tests_properties("${NAME}.${suite}" PROPERTIES LABELS nightly)
    endif()
  endif()
endmacro()

set(suite "")
foreach(line ${listed})
  if(line MATCHES "^  ")
    math(EXPR tests "${tests} + 1")
  elseif(line MATCHES "^([^ ]+)\\.$")
    set(next ${CMAKE_MATCH_1})
    add_suite()
    set(suite ${next})
    set(tests 0)
  endif()
endforeach()
add_suite()
