#include "rewards/http/library.h"

#include "base/error.h"
#include "base/parts/dynamic_library.h"

namespace temper::rewards {
namespace {

Curl open() {
  static const DynamicLibrary library({"libcurl.so.4", "libcurl-gnutls.so.4"});
  if (!library.opened())
    fail_resources(
        "[libcurl] rewards of type http need it, but it cannot be opened ({}); install it (Debian: libcurl4)",
        library.error());
  Curl curl{};
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
  library.look_up("curl_global_init", global_init);
  library.look_up("curl_version_info", version_info);
  library.look_up("curl_easy_init", curl.easy_init);
  library.look_up("curl_easy_setopt", curl.easy_setopt);
  library.look_up("curl_easy_getinfo", curl.easy_getinfo);
  library.look_up("curl_easy_cleanup", curl.easy_cleanup);
  library.look_up("curl_easy_strerror", curl.easy_strerror);
  library.look_up("curl_slist_append", curl.slist_append);
  library.look_up("curl_slist_free_all", curl.slist_free_all);
  library.look_up("curl_multi_init", curl.multi_init);
  library.look_up("curl_multi_add_handle", curl.multi_add_handle);
  library.look_up("curl_multi_remove_handle", curl.multi_remove_handle);
  library.look_up("curl_multi_perform", curl.multi_perform);
  library.look_up("curl_multi_info_read", curl.multi_info_read);
  library.look_up("curl_multi_poll", curl.multi_poll);
  library.look_up("curl_multi_wakeup", curl.multi_wakeup);
  library.look_up("curl_multi_cleanup", curl.multi_cleanup);
  library.look_up("curl_multi_strerror", curl.multi_strerror);
  library.look_up("curl_url", curl.url);
  library.look_up("curl_url_set", curl.url_set);
  library.look_up("curl_url_get", curl.url_get);
  library.look_up("curl_url_cleanup", curl.url_cleanup);
  library.look_up("curl_free", curl.free);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail_resources("[libcurl] cannot be initialized");
  curl.version = version_info(CURLVERSION_NOW)->version;
  return curl;
}

}  // namespace

const Curl& curl() {
  static const Curl opened = open();
  return opened;
}

LibraryState probe_curl() {
  return probe_library([] { return curl().version; });
}

}  // namespace temper::rewards
