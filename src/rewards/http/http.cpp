// A server that judges answers (protocol.h), each by a POST request of its own.
#include "base/error.h"
#include "base/registry.h"
#include "rewards/http/client.h"
#include "rewards/http/library.h"
#include "rewards/protocol.h"
#include "rewards/room.h"

namespace temper::rewards {
namespace {

bool is_url(const std::string& text) {
  if (!text.starts_with("http://") && !text.starts_with("https://")) return false;
  CURLU* url = curl().url();
  const bool parsed = curl().url_set(url, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  curl().url_cleanup(url);
  return parsed;
}

void check_http(const RewardConfig& config, const std::string& key) {
  if (config.url.empty()) fail("[{}.url] is missing; write for example http://localhost:8000/judge", key);
  if (!is_url(config.url))
    fail("[{}.url] '{}' is no address of a server; write for example http://localhost:8000/judge", key,
         config.url);
}

class HttpReward final : public Reward {
 public:
  HttpReward(Server server, const std::string& key) : client_(std::move(server), key) {}
  void submit(int64_t id, const Sample& sample) override {
    client_.submit({id, sample.place, request_of(id, sample)});
  }
  std::vector<std::pair<int64_t, Verdict>> take(double seconds) override { return client_.take(seconds); }

 private:
  Client client_;
};

std::unique_ptr<Reward> make(const RewardConfig& config, const std::string& key) {
  Server server{.url = config.url};
  if (config.parallel) server.parallel = static_cast<size_t>(*config.parallel);
  if (config.retries) server.retries = static_cast<int>(*config.retries);
  if (config.timeout) server.timeout = *config.timeout;
  return std::make_unique<HttpReward>(std::move(server), key);
}

}  // namespace

void register_http() {
  registry<Room>().add("http", {{"url", "parallel", "retries", "timeout"}, check_http, make});
  registry<LibraryProbe>().add("libcurl", probe_curl);
}

}  // namespace temper::rewards
