#include "rewards/http/client.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rewards/http/library.h"
#include "rewards/protocol.h"

namespace temper::rewards {
namespace {

constexpr size_t kLongestResponse = 64 << 20, kShown = 200;
constexpr double kFirstPause = 0.5, kLongestPause = 30;  // seconds
constexpr double kLongestAsked = 300;                    // seconds, by the server
constexpr long kTooMany = 429;

double pause_before(int attempt) { return std::min(kLongestPause, kFirstPause * std::pow(2, attempt - 1)); }

// There is no server, or it went away: another attempt may find one.
bool is_lost(CURLcode result) {
  return result == CURLE_COULDNT_CONNECT || result == CURLE_GOT_NOTHING || result == CURLE_SEND_ERROR ||
         result == CURLE_RECV_ERROR;
}

std::string shown(const std::string& response) {
  if (response.empty()) return "nothing";
  return fmt::format("'{}{}'", replace_invalid_utf8(response.substr(0, kShown)),
                     response.size() > kShown ? "…" : "");
}

}  // namespace

Client::Client(Server server, const std::string& key) : server_(std::move(server)) {
  multi_ = curl().multi_init();
  if (multi_ == nullptr) fail_resources("[{}] libcurl has no memory", key);
  // Servers that are asked to agree before a long text is sent often do not, and a second is lost.
  headers_ = curl().slist_append(curl().slist_append(nullptr, "Content-Type: application/json"), "Expect:");
  exchange_.start(
      key + ".url", [this] { serve(); }, [this] { curl().multi_wakeup(multi_); });
}

Client::~Client() {
  exchange_.stop();
  for (Request& request : running_) remove(request);
  curl().multi_cleanup(multi_);
  curl().slist_free_all(headers_);
}

void Client::serve() {
  while (exchange_.take_submitted(queue_)) {
    start_requests();
    int running = 0;
    if (const CURLMcode code = curl().multi_perform(multi_, &running); code != CURLM_OK)
      fail_resources("libcurl cannot continue: {}", curl().multi_strerror(code));
    finish_requests();
    wait_for_work();
  }
}

// Those that wait for another attempt come first.
void Client::start_requests() {
  const double now = seconds_now();
  if (now < not_before_) return;
  for (auto next = waiting_.begin(); next != waiting_.end() && running_.size() < server_.parallel;) {
    const auto request = next++;
    if (request->not_before > now) continue;
    running_.splice(running_.end(), waiting_, request);
    start(running_.back());
  }
  while (!queue_.empty() && running_.size() < server_.parallel) {
    running_.push_back({.task = std::move(queue_.front())});
    queue_.pop_front();
    start(running_.back());
  }
}

void Client::start(Request& request) {
  request.response.clear();
  ++request.attempts;
  CURL* handle = curl().easy_init();
  if (handle == nullptr) fail_resources("libcurl has no memory");
  request.handle = handle;
  const auto set = [handle](CURLoption option, auto value) { curl().easy_setopt(handle, option, value); };
  set(CURLOPT_URL, server_.url.c_str());
  if (server_.here) set(CURLOPT_PROXY, "");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_POSTFIELDS, request.task.request.c_str());
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.task.request.size()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::ceil(server_.timeout * 1000)));
  set(CURLOPT_WRITEFUNCTION, &Client::receive);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&request));
  set(CURLOPT_PRIVATE, static_cast<void*>(&request));
  curl().multi_add_handle(multi_, handle);
}

size_t Client::receive(char* data, size_t size, size_t count, void* request) {
  std::string& response = static_cast<Request*>(request)->response;
  if (response.size() + size * count > kLongestResponse) return 0;  // CURLE_WRITE_ERROR
  response.append(data, size * count);
  return size * count;
}

void Client::finish_requests() {
  std::vector<std::pair<int64_t, Verdict>> verdicts;
  int left = 0;
  while (const CURLMsg* message = curl().multi_info_read(multi_, &left)) {
    const auto request = std::find_if(running_.begin(), running_.end(), [&](const Request& running) {
      return running.handle == message->easy_handle;
    });
    if (request != running_.end()) finish(request, message->data.result, verdicts);
  }
  exchange_.add(std::move(verdicts));
}

// `asked`: the seconds that the server wants the next attempt to wait.
bool Client::is_repeated(Requests::iterator request, CURLcode result, long status, double asked) {
  const bool busy = result == CURLE_OK && (status == kTooMany || status >= 500);
  if (!(busy || is_lost(result)) || request->attempts > server_.retries || asked > kLongestAsked)
    return false;
  request->not_before = seconds_now() + std::max(asked, pause_before(request->attempts));
  if (status == kTooMany) not_before_ = std::max(not_before_, request->not_before);
  waiting_.splice(waiting_.end(), running_, request);
  return true;
}

void Client::finish(Requests::iterator request, CURLcode result,
                    std::vector<std::pair<int64_t, Verdict>>& verdicts) {
  long status = 0;
  curl_off_t asked = 0;  // by Retry-After, which may be a number or a date
  curl().easy_getinfo(request->handle, CURLINFO_RESPONSE_CODE, &status);
  curl().easy_getinfo(request->handle, CURLINFO_RETRY_AFTER, &asked);
  remove(*request);
  if (is_repeated(request, result, status, static_cast<double>(asked))) return;
  Verdict verdict;
  std::string problem;
  if (result == CURLE_OPERATION_TIMEDOUT) {
    problem = fmt::format("gave no answer within {:g} seconds", server_.timeout);
  } else if (result == CURLE_WRITE_ERROR) {
    problem = fmt::format("answered with more than {}", format_bytes(kLongestResponse));
  } else if (result != CURLE_OK) {
    problem = fmt::format("cannot be asked: {}", curl().easy_strerror(result));
  } else if (status < 200 || status > 299) {
    problem = fmt::format("answered with status {} and {}", status, shown(request->response));
    if (asked > kLongestAsked)
      problem +=
          fmt::format(", and is to be asked again after {} seconds, more than {:g}", asked, kLongestAsked);
  } else {
    ProtocolAnswer answer = answer_of(request->response);
    if (answer.problem.empty() && answer.id != request->task.id)
      answer.problem = fmt::format("its id is {}, expected {}", *answer.id, request->task.id);
    if (!answer.problem.empty())
      problem = fmt::format("sent something that is not an answer: {}", answer.problem);
    verdict = std::move(answer.verdict);
  }
  if (!problem.empty()) {
    const std::string attempts =
        request->attempts > 1 ? fmt::format(" ({} attempts)", request->attempts) : "";
    verdict = {.error = fmt::format("server {} {}{}", server_.url, problem, attempts)};
  }
  verdicts.emplace_back(request->task.id, std::move(verdict));
  running_.erase(request);
}

void Client::wait_for_work() {
  double seconds = 1;
  const double now = seconds_now();
  if (now < not_before_) {
    seconds = std::min(seconds, not_before_ - now);
  } else if (running_.size() < server_.parallel) {
    if (!queue_.empty()) return;
    for (const Request& request : waiting_) seconds = std::min(seconds, request.not_before - now);
  }
  const int milliseconds = static_cast<int>(std::ceil(std::max(0.0, seconds) * 1000));
  curl().multi_poll(multi_, nullptr, 0, milliseconds, nullptr);
}

void Client::remove(Request& request) {
  curl().multi_remove_handle(multi_, request.handle);
  curl().easy_cleanup(request.handle);
  request.handle = nullptr;
}

}  // namespace temper::rewards
