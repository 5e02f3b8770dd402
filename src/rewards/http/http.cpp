// A server that judges answers (protocol.h), each by a POST request of its own.
#include <arpa/inet.h>

#include <cctype>

#include "base/error.h"
#include "base/parts/registry.h"
#include "rewards/http/client.h"
#include "rewards/http/library.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

// The host of an address ("localhost", "[::1]"), in lower case; empty where it is not the address of a
// server.
std::string host_of(const std::string& text) {
  if (!text.starts_with("http://") && !text.starts_with("https://")) return {};
  CURLU* url = curl().url();
  char* host = nullptr;
  std::string found;
  if (curl().url_set(url, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK &&
      curl().url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK)
    found = host;
  curl().free(host);
  curl().url_cleanup(url);
  for (char& c : found) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return found;
}

// Not "127.evil.example", which is a name that a proxy may know.
bool is_this_machine(const std::string& host) {
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1)
    return address.s_addr == htonl(INADDR_ANY) || (ntohl(address.s_addr) >> 24) == 127;
  return host == "localhost" || host.ends_with(".localhost") || host == "[::1]" || host == "[::]";
}

void check_http(const RewardConfig& config, const std::string& key) {
  if (config.judge.url.empty())
    fail("[{}.url] is missing; write for example http://localhost:8000/judge", key);
  if (host_of(config.judge.url).empty())
    fail("[{}.url] '{}' is not the address of a server; write for example http://localhost:8000/judge", key,
         config.judge.url);
}

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string& key) {
  Server server{.url = config.judge.url, .here = is_this_machine(host_of(config.judge.url))};
  if (config.judge.parallel) server.parallel = static_cast<size_t>(*config.judge.parallel);
  if (config.judge.retries) server.retries = static_cast<int>(*config.judge.retries);
  if (config.judge.timeout) server.timeout = *config.judge.timeout;
  return std::make_unique<Client>(std::move(server), key);
}

}  // namespace

void register_http() {
  registry<Room>().add("http", {{"url", "parallel", "retries", "timeout"}, check_http, make});
  registry<LibraryProbe>().add("libcurl", probe_curl);
}

}  // namespace temper::rewards
