# Its headers only: libcurl is opened at run time (library.cpp).
target_include_directories(temper_lib SYSTEM PRIVATE ${CURL_INCLUDE_DIRS})
