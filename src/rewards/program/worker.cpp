#include "rewards/program/worker.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rewards/protocol.h"

namespace temper::rewards {
namespace {

constexpr size_t kPiece = 64 << 10;
constexpr size_t kLongestLine = 64 << 20;
constexpr size_t kErrorBytes = 4 << 10, kErrorLines = 5;  // of the program's last messages

enum class Got { kBytes, kNothing, kEnd };

// Adds what is there to `text`.
Got read_some(int file, std::string& text) {
  std::array<char, kPiece> piece;
  const ssize_t size = ::read(file, piece.data(), piece.size());
  if (size > 0) text.append(piece.data(), static_cast<size_t>(size));
  if (size > 0) return Got::kBytes;
  return size < 0 && (errno == EAGAIN || errno == EINTR) ? Got::kNothing : Got::kEnd;
}

}  // namespace

void Worker::give(Task task, double now) {
  // One that has ended since, and had nothing left to do, is no loss.
  if (child_ && tasks_.empty() && child_->ended()) child_.reset();
  if (!child_) {
    outgoing_.clear();
    incoming_.clear();
    errors_.clear();
    searched_ = 0;
    child_ = std::make_unique<Child>(launch_->words);
  }
  outgoing_ += task.request;
  outgoing_ += '\n';
  tasks_.push_back({std::move(task), now + launch_->timeout});
}

void Worker::add_waits(std::vector<pollfd>& waits) const {
  if (!child_) return;
  if (!outgoing_.empty()) waits.push_back({child_->input(), POLLOUT, 0});
  waits.push_back({child_->output(), POLLIN, 0});
  if (child_->errors() >= 0) waits.push_back({child_->errors(), POLLIN, 0});
}

double Worker::deadline() const {
  double first = std::numeric_limits<double>::infinity();
  for (const Given& given : tasks_) first = std::min(first, given.deadline);
  return first;
}

std::optional<Worker::Death> Worker::advance(double now, std::vector<std::pair<int64_t, Verdict>>& verdicts) {
  if (!child_) return std::nullopt;
  blamed_ = 0;
  const bool reads_on = write();
  const bool writes_on = read();
  read_errors();
  if (const auto problem = take_lines(verdicts)) return die(*problem);
  if (!writes_on) return die(end_of("closed its standard output"));
  if (!reads_on) return die(end_of("closed its standard input"));
  for (size_t i = 0; i < tasks_.size(); ++i)
    if (tasks_[i].deadline <= now) {
      blamed_ = i;
      return die(fmt::format("gave no answer within {:g} seconds", launch_->timeout));
    }
  return std::nullopt;
}

// Whether the process reads on.
bool Worker::write() {
  size_t written = 0;
  bool reads_on = true;
  while (written < outgoing_.size()) {
    const ssize_t size = ::write(child_->input(), outgoing_.data() + written, outgoing_.size() - written);
    if (size < 0) {
      reads_on = errno == EAGAIN || errno == EINTR;
      break;
    }
    written += static_cast<size_t>(size);
  }
  outgoing_.erase(0, written);
  return reads_on;
}

// Whether the process writes on. A line may come in many pieces, but a program that writes without end is
// interrupted.
bool Worker::read() {
  Got got = Got::kBytes;
  for (size_t piece = 0; got == Got::kBytes && piece < kLongestLine / kPiece; ++piece)
    got = read_some(child_->output(), incoming_);
  return got != Got::kEnd;
}

void Worker::read_errors() {
  if (child_->errors() < 0) return;
  Got got = Got::kBytes;
  for (size_t piece = 0; got == Got::kBytes && piece < kLongestLine / kPiece; ++piece) {
    got = read_some(child_->errors(), errors_);
    if (errors_.size() > kErrorBytes) errors_.erase(0, errors_.size() - kErrorBytes);
  }
  // A program may close its errors and live on; poll() would never wait again.
  if (got == Got::kEnd) child_->close_errors();
}

// What is wrong with one of the lines, if anything.
std::optional<std::string> Worker::take_lines(std::vector<std::pair<int64_t, Verdict>>& verdicts) {
  size_t begin = 0;
  std::optional<std::string> problem;
  for (size_t end; !problem && (end = incoming_.find('\n', std::max(begin, searched_))) != std::string::npos;
       begin = end + 1) {
    const std::string_view line = std::string_view(incoming_).substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ProtocolAnswer answer = answer_of(line);
    const auto known = std::find_if(tasks_.begin(), tasks_.end(),
                                    [&](const Given& given) { return answer.id == given.task.id; });
    if (answer.id && known == tasks_.end()) {
      problem = fmt::format("answered id {}, which it has not been asked about", *answer.id);
    } else if (!answer.problem.empty()) {
      if (answer.id) blamed_ = static_cast<size_t>(known - tasks_.begin());
      problem = fmt::format("wrote to its standard output a line that is not an answer: {}", answer.problem);
    } else {
      verdicts.emplace_back(*answer.id, std::move(answer.verdict));
      tasks_.erase(known);
      deaths_ = 0;
    }
  }
  incoming_.erase(0, begin);
  searched_ = incoming_.size();
  if (!problem && incoming_.size() > kLongestLine)
    problem = fmt::format("wrote a line of more than {}", format_bytes(kLongestLine));
  return problem;
}

// How the process ended, for which it may need a moment more; or else what it did instead.
std::string Worker::end_of(const std::string& otherwise) {
  for (int i = 0; i < 200; ++i) {
    if (const auto status = child_->ended()) return describe_end(*status);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return otherwise;
}

// Ends the process. No death if it had nothing to do; then a message is printed once.
std::optional<Worker::Death> Worker::die(const std::string& what) {
  read_errors();
  child_.reset();
  Death death;
  death.reason = fmt::format("program '{}' {}{}", launch_->name, what, last_errors());
  if (tasks_.empty()) {
    if (!std::exchange(was_reported_, true))
      log_warning(death.reason + "\n  (between two answers; it is started again for the next one)");
    return std::nullopt;
  }
  ++deaths_;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (i == blamed_)
      death.blamed = std::move(tasks_[i].task);
    else
      death.others.push_back(std::move(tasks_[i].task));
  }
  tasks_.clear();
  return death;
}

std::string Worker::last_errors() const {
  std::vector<std::string> lines;
  const std::string text = replace_invalid_utf8(errors_);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) return ", and wrote nothing to its standard error";
  if (lines.size() > kErrorLines) lines.erase(lines.begin(), lines.end() - kErrorLines);
  return "; its last lines on standard error:\n  " + join(lines, "\n  ");
}

void Worker::close_input() {
  if (child_) child_->close_input();
}

}  // namespace temper::rewards
