#pragma once
#include <curl/curl.h>

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rewards/exchange.h"

namespace temper::rewards {

struct Server {
  std::string url;
  bool here = false;    // on this machine, which no proxy leads to
  size_t parallel = 8;  // requests at once
  int retries = 4;      // after the first attempt
  double timeout = 30;  // seconds for each attempt
};

// Sends answers to a server, with a thread that does all requests. An attempt that finds no server, whose
// connection breaks, or that is answered by status 429 or one from 500 on is repeated after half a second,
// then one second, two and so on, up to half a minute, or when the server asks for it (Retry-After), up to
// five minutes. After status 429 no other request begins before that either.
class Client final : public ExchangeReward {
 public:
  Client(Server server, const std::string& key);
  ~Client() override;  // what is under way is dropped
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 private:
  struct Request {
    Task task;
    int attempts = 0;
    double not_before = 0;  // seconds_now()
    CURL* handle = nullptr;
    std::string response = {};
  };
  using Requests = std::list<Request>;
  void serve();
  void start_requests();
  void start(Request& request);
  void finish(Requests::iterator request, CURLcode result,
              std::vector<std::pair<int64_t, Verdict>>& verdicts);
  bool is_repeated(Requests::iterator request, CURLcode result, long status, double asked);
  void finish_requests();
  void wait_for_work();
  static size_t receive(char* data, size_t size, size_t count, void* request);
  void remove(Request& request);

  const Server server_;
  CURLM* multi_ = nullptr;
  curl_slist* headers_ = nullptr;
  // Of the thread alone.
  std::deque<Task> queue_;
  Requests running_, waiting_;  // waiting: for another attempt
  double not_before_ = 0;       // seconds_now(): what begins next
};

}  // namespace temper::rewards
