#pragma once
// The one header that includes libcurl's.
#include <curl/curl.h>

#include "base/parts/libraries.h"

namespace temper::rewards {

// libcurl as this program uses it: opened when a reward asks for it, so that the program starts without it.
struct Curl {
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_multi_init) multi_init;
  decltype(&curl_multi_add_handle) multi_add_handle;
  decltype(&curl_multi_remove_handle) multi_remove_handle;
  decltype(&curl_multi_perform) multi_perform;
  decltype(&curl_multi_info_read) multi_info_read;
  decltype(&curl_multi_poll) multi_poll;
  decltype(&curl_multi_wakeup) multi_wakeup;
  decltype(&curl_multi_cleanup) multi_cleanup;
  decltype(&curl_multi_strerror) multi_strerror;
  decltype(&curl_url) url;
  decltype(&curl_url_set) url_set;
  decltype(&curl_url_get) url_get;
  decltype(&curl_url_cleanup) url_cleanup;
  decltype(&curl_free) free;
  const char* version;  // "7.88.1"
};

// Opens it once. A kResources Error where it is missing, or too old (7.68 is needed).
const Curl& curl();
LibraryState probe_curl();

}  // namespace temper::rewards
