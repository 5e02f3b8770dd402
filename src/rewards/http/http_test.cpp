#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "rewards/test_support.h"

namespace temper::rewards {
namespace {

// Answers each connection, on a thread of its own, with what `respond` makes of the request's body; with
// nothing where that is empty.
class TinyServer {
 public:
  using Respond = std::function<std::string(const Json& body)>;
  explicit TinyServer(Respond respond, int port = 0) : respond_(std::move(respond)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~TinyServer() {
    stop_ = true;
    thread_.join();
    for (std::thread& thread : connections_) thread.join();
    ::close(listener_);
  }
  int port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/judge", port_); }
  // Of a proxy, which is asked for whole addresses.
  void set_asked_as(std::string target) { asked_as_ = std::move(target); }
  int requests() const { return requests_; }
  int most_at_once() const { return most_; }

 private:
  bool is_readable(int file) const {
    while (!stop_) {
      pollfd wait{file, POLLIN, 0};
      if (::poll(&wait, 1, 20) == 1) return true;
    }
    return false;
  }

  void accept_all() {
    while (is_readable(listener_)) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0) connections_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string request;
    size_t body = std::string::npos, length = 0;
    while (body == std::string::npos || request.size() < body + length) {
      char piece[65536];
      const ssize_t size = is_readable(connection) ? ::read(connection, piece, sizeof piece) : 0;
      if (size <= 0) break;
      request.append(piece, static_cast<size_t>(size));
      if (body != std::string::npos || (body = request.find("\r\n\r\n")) == std::string::npos) continue;
      length = std::stoul(request.substr(request.find("Content-Length: ") + 16));
      body += 4;
    }
    if (body != std::string::npos) {
      EXPECT_TRUE(request.starts_with("POST " + asked_as_ + " HTTP/1.1\r\n")) << request.substr(0, 80);
      expect_has(request, "Content-Type: application/json\r\n");
      const int now = ++running_;
      for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
      }
      ++requests_;
      const std::string response = respond_(Json::parse(request.substr(body), "request"));
      for (size_t sent = 0; sent < response.size();) {
        const ssize_t size = ::send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
        if (size <= 0) break;
        sent += static_cast<size_t>(size);
      }
      --running_;
    }
    ::close(connection);
  }

  Respond respond_;
  std::string asked_as_ = "/judge";
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> requests_ = 0, running_ = 0, most_ = 0;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

std::string response(const std::string& status, const std::string& body, const std::string& headers = "") {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}", status,
                     body.size(), headers, body);
}
std::string reward_response(const Json& asked, double reward) {
  return response("200 OK", Json(Json::Object{{"id", asked.at("id")}, {"reward", reward}}).dump());
}

Verdict judged_by(const TinyServer& server, const std::string& text = "a", int64_t retries = 0) {
  return verdict_on({.type = "http", .judge = {.url = server.url(), .retries = retries}},
                    R"({"value": 0.25})", text);
}

TEST(HttpReward, Judges) {
  const TinyServer server(
      [](const Json& asked) { return reward_response(asked, asked.at("row").at("value").as_double()); });
  const auto reward = make_reward({.type = "http", .judge = {.url = server.url(), .parallel = 4}}, kKey);
  EXPECT_TRUE(reward->take(kForEver).empty());
  for (int64_t id = 0; id < 20; ++id) {
    const Json row = Json::Object{{"value", static_cast<double>(id)}};
    reward->submit(id, {.place = "", .row = &row, .text = std::string(100'000, 'x')});
  }
  std::map<int64_t, Verdict> verdicts;
  for (auto taken = reward->take(kForEver); !taken.empty(); taken = reward->take(kForEver))
    verdicts.insert(taken.begin(), taken.end());
  ASSERT_EQ(verdicts.size(), 20u);
  for (const auto& [id, verdict] : verdicts) {
    EXPECT_EQ(verdict.error, "");
    EXPECT_EQ(verdict.reward, static_cast<double>(id));
  }
  EXPECT_LE(server.most_at_once(), 4);
}

TEST(HttpReward, ServersThatCannotServeAreAskedAgain) {
  std::atomic<int> attempts = 0;
  const TinyServer server([&](const Json& asked) {
    return ++attempts == 1 ? response("503 Service Unavailable", "busy")
           : attempts == 2 ? std::string()
                           : reward_response(asked, 1);
  });
  const double start = seconds_now();
  EXPECT_EQ(judged_by(server, "a", 2).reward, 1);
  EXPECT_EQ(server.requests(), 3);
  EXPECT_GE(seconds_now() - start, 1.5) << "without a pause";
}

TEST(HttpReward, AttemptsEnd) {
  const TinyServer server([](const Json&) { return response("503 Service Unavailable", "busy"); });
  EXPECT_EQ(judged_by(server, "a", 1).error,
            "server " + server.url() + " answered with status 503 and 'busy' (2 attempts)");
  EXPECT_EQ(server.requests(), 2);
}

// A server that has too much to do says when it is to be asked again: by all, not by those it refused alone.
TEST(HttpReward, ServersThatAreAskedTooOftenAreLeftAlone) {
  std::atomic<bool> refused = false;
  std::atomic<double> end_of_pause = 0;
  const TinyServer server([&](const Json& asked) {
    if (!refused.exchange(true)) {
      end_of_pause = seconds_now() + 2;
      return response("429 Too Many Requests", "slower", "Retry-After: 2\r\n");
    }
    EXPECT_GE(seconds_now(), end_of_pause - 0.01) << "a request in the pause";
    return reward_response(asked, 1);
  });
  const auto reward =
      make_reward({.type = "http", .judge = {.url = server.url(), .parallel = 1, .retries = 1}}, kKey);
  const Json row = Json::Object{};
  for (int64_t id = 0; id < 3; ++id) reward->submit(id, {.place = "", .row = &row, .text = "a"});
  int judged = 0;
  for (auto taken = reward->take(kForEver); !taken.empty(); taken = reward->take(kForEver))
    for (const auto& [id, verdict] : taken) {
      EXPECT_EQ(verdict.error, "");
      ++judged;
    }
  EXPECT_EQ(judged, 3);
  EXPECT_EQ(server.requests(), 4);
}

TEST(HttpReward, NobodyWaitsForHours) {
  const TinyServer server(
      [&](const Json&) { return response("429 Too Many Requests", "tomorrow", "Retry-After: 3600\r\n"); });
  EXPECT_EQ(judged_by(server, "a", 4).error,
            "server " + server.url() +
                " answered with status 429 and 'tomorrow', and is to be asked again after 3600 seconds, more "
                "than 300");
  EXPECT_EQ(server.requests(), 1);
}

class Proxy {
 public:
  explicit Proxy(const std::string& url) { ::setenv("http_proxy", url.c_str(), 1); }
  ~Proxy() { ::unsetenv("http_proxy"); }
};

// Machines of a cluster reach the world through a proxy, which does not lead back to them.
TEST(HttpReward, ServersOfThisMachineAreAskedWithoutAProxy) {
  TinyServer proxy([](const Json& asked) { return reward_response(asked, 2); });
  const TinyServer server([](const Json& asked) { return reward_response(asked, 1); });
  const Proxy set(fmt::format("http://127.0.0.1:{}", proxy.port()));
  const auto reward_at = [&](const std::string& host, int port) {
    const std::string url = fmt::format("http://{}:{}/judge", host, port);
    const Verdict verdict =
        verdict_on({.type = "http", .judge = {.url = url, .retries = 0}}, "{}", std::string("a"));
    EXPECT_EQ(verdict.error, "") << url;
    return verdict.reward;
  };
  for (const char* host : {"127.0.0.1", "localhost", "LocalHost", "0.0.0.0"})
    EXPECT_EQ(reward_at(host, server.port()), 1) << host;
  for (const char* host : {"judge.example", "127.evil.example", "localhost.example"}) {
    proxy.set_asked_as(fmt::format("http://{}:8080/judge", host));
    EXPECT_EQ(reward_at(host, 8080), 2) << host;
  }
}

TEST(HttpReward, MistakesAreNotRepeated) {
  const TinyServer server([](const Json& asked) {
    const std::string& text = asked.at("text").as_string();
    if (text == "moved") return response("302 Found", "");
    if (text == "wrong") return response("422 Unprocessable Content", "no field 'value'");
    if (text == "other") return response("200 OK", R"({"id": 99, "reward": 1})");
    if (text == "long") return response("200 OK", std::string((64 << 20) + 1, ' '));
    if (text == "error") return response("200 OK", R"({"id": 7, "error": "cannot judge this"})");
    return response("200 OK", "<html>");
  });
  const std::string name = "server " + server.url();
  EXPECT_EQ(judged_by(server, "wrong", 5).error, name + " answered with status 422 and 'no field 'value''");
  EXPECT_EQ(judged_by(server, "moved", 5).error, name + " answered with status 302 and nothing");
  EXPECT_EQ(judged_by(server, "other", 5).error,
            name + " sent something that is not an answer: its id is 99, expected 7");
  EXPECT_EQ(judged_by(server, "error", 5).error, "cannot judge this");
  expect_has(judged_by(server, "", 5).error,
             name + " sent something that is not an answer: '<html>' is not a JSON object (");
  EXPECT_EQ(judged_by(server, "long", 5).error, name + " answered with more than 64.00 MiB");
  EXPECT_EQ(server.requests(), 6);
}

TEST(HttpReward, NoServer) {
  std::string url;
  {
    url = TinyServer([](const Json&) { return ""; }).url();
  }
  const Verdict verdict =
      verdict_on({.type = "http", .judge = {.url = url, .retries = 1}}, "{}", std::string("a"));
  EXPECT_EQ(verdict.error, "server " + url + " cannot be asked: Couldn't connect to server (2 attempts)");
}

TEST(HttpReward, Timeout) {
  const TinyServer server([](const Json& asked) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return reward_response(asked, 1);
  });
  const Verdict verdict = verdict_on(
      {.type = "http", .judge = {.url = server.url(), .retries = 3, .timeout = 0.5}}, "{}", std::string("a"));
  EXPECT_EQ(verdict.error, "server " + server.url() + " gave no answer within 0.5 seconds");
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpReward, IsEndedInTheMiddleOfItsWork) {
  const TinyServer server([](const Json& asked) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return reward_response(asked, 1);
  });
  const auto reward = make_reward({.type = "http", .judge = {.url = server.url()}}, kKey);
  const Json row = Json::Object{};
  for (int64_t id = 0; id < 30; ++id) reward->submit(id, {.place = "", .row = &row, .text = "a"});
  reward->take(kForEver);
}

TEST(HttpReward, Configuration) {
  EXPECT_EQ(config_error({.type = "http"}),
            "[grpo.rewards[0].url] is missing; write for example http://localhost:8000/judge");
  for (const char* url :
       {"localhost:8000", "ftp://localhost/", "http://", "http://localhost:port/", "http://a b/"})
    EXPECT_EQ(config_error({.type = "http", .judge = {.url = url}}),
              fmt::format("[grpo.rewards[0].url] '{}' is not the address of a server; write for example "
                          "http://localhost:8000/judge",
                          url));
  EXPECT_EQ(config_error({.type = "http", .judge = {.url = "https://judge.example.org/v1?model=a"}}), "");
}

}  // namespace
}  // namespace temper::rewards
