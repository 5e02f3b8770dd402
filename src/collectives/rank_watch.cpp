#include "collectives/rank_watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/waited.h"
#include "collectives/launcher_line.h"

namespace temper::collectives {
namespace {

constexpr int64_t kPagesFreed = 256;  // what counts as some

bool is_stopped(pid_t process) {
  std::string text;
  try {
    text = read_file(fmt::format("/proc/{}/stat", process));
  } catch (const Error&) {
    return false;
  }
  const size_t name = text.rfind(") ");
  return name != std::string::npos && name + 2 < text.size() &&
         (text[name + 2] == 'T' || text[name + 2] == 't');
}

// Of a process's memory those that no file holds, which the system takes away where it is short of memory.
// Nothing where that cannot be seen.
std::optional<int64_t> own_pages_of(pid_t process) {
  std::string text;
  try {
    text = read_file(fmt::format("/proc/{}/statm", process));
  } catch (const Error&) {
    return std::nullopt;
  }
  int64_t size = 0, resident = 0, shared = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 " %" SCNd64 " %" SCNd64, &size, &resident, &shared) != 3)
    return std::nullopt;
  return resident - shared;
}

}  // namespace

// Of one rank. The process cannot be mistaken for another one: its descriptor is its own.
struct RankWatch::Line {
  int socket = -1, process_file = -1;
  pid_t process = 0;
  int rank = -1;
  bool ends = false, asked = false;
  std::optional<Waited> stopped = {};

  explicit Line(int from) : socket(from) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid())
      process = peer.pid;
    if (process > 0) process_file = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  }
  ~Line() {
    ::close(socket);
    if (process_file >= 0) ::close(process_file);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void signal(int number) const {
    // Where the system has no such descriptors: the connection is open, so that the process lives.
    if (process_file < 0)
      ::kill(process, number);
    else
      ::syscall(SYS_pidfd_send_signal, process_file, number, nullptr, 0);
  }
};

RankWatch::RankWatch(int ranks, RankDeadlines deadlines)
    : ranks_(ranks),
      deadlines_(deadlines),
      name_(fmt::format("temper-ranks-{}-{:.0f}", ::getpid(), seconds_now() * 1e6)),
      is_ready_(static_cast<size_t>(ranks)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name_.data(), name_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
  socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ >= 0 && ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      ::listen(socket_, SOMAXCONN) == 0)
    return;
  const std::string reason = std::strerror(errno);
  if (socket_ >= 0) ::close(socket_);
  fail_resources("[--ranks] no socket can be had to hear of {} ranks: {}", ranks, reason);
}

RankWatch::~RankWatch() { ::close(socket_); }

void RankWatch::accept() {
  for (int one; (one = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    auto line = std::make_unique<Line>(one);
    if (line->process > 0) lines_.push_back(std::move(line));
  }
}

void RankWatch::read_line(Line& line) {
  std::array<char, 64> packet{};
  for (ssize_t size; (size = ::recv(line.socket, packet.data(), packet.size(), 0)) != 0;) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) break;
    const std::string_view said(packet.data(), static_cast<size_t>(size));
    if (said.starts_with(kIsHere)) {
      std::from_chars(said.data() + kIsHere.size(), said.data() + said.size(), line.rank);
      at_.news = now_;
    } else if (said == kIsReady && line.rank >= 0 && line.rank < ranks_) {
      is_ready_[static_cast<size_t>(line.rank)] = 1;
      ++ready_;
      at_.news = now_;
    } else if (said == kEnds) {
      line.ends = true;
      if (at_.ended == 0) at_.ended = now_;
    }
  }
  at_.freed = now_;
  if (!line.ends && at_.lost == 0) {
    at_.lost = now_;
    lost_ = describe(line);
  }
  ::close(std::exchange(line.socket, -1));
}

void RankWatch::listen(double seconds) {
  now_ = waited_.seconds();
  std::vector<pollfd> all{{socket_, POLLIN, 0}};
  for (const auto& line : lines_) all.push_back({line->socket, POLLIN, 0});
  if (::poll(all.data(), all.size(), static_cast<int>(std::ceil(seconds * 1e3))) > 0) {
    accept();
    for (const auto& line : lines_) read_line(*line);
    std::erase_if(lines_, [](const auto& line) { return line->socket < 0; });
  }
  for (const auto& line : lines_)
    if (stops_ && line->rank >= 0 && !std::exchange(line->asked, true)) line->signal(SIGUSR1);
}

void RankWatch::ask_to_stop() {
  if (!std::exchange(stops_, true)) at_.asked = waited_.seconds();
}

std::string RankWatch::describe(const Line& line) const {
  return fmt::format("rank {} (process {})", line.rank, line.process);
}

// Those that have not found the others.
std::string RankWatch::missing() const {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (is_ready_[static_cast<size_t>(rank)] != 0) continue;
    const auto found =
        std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) { return line->rank == rank; });
    if (found == lines_.end())
      names.push_back(fmt::format("rank {}, which has not come", rank));
    else
      names.push_back(describe(**found) + (is_stopped((*found)->process) ? ", which is stopped" : ""));
  }
  return join(names, "; ");
}

// Whether some ranks have been stopped for long, but not all: a user who suspends a run stops all its ranks.
std::string RankWatch::stopped() {
  size_t count = 0;
  std::string found;
  const auto is_long = [&](pid_t process, std::optional<Waited>& since) {
    if (!is_stopped(process)) {
      since.reset();
      return false;
    }
    if (!since) since.emplace();
    return since->seconds() > deadlines_.stop;
  };
  if (launcher_ > 0 && is_long(launcher_, launcher_stopped_))
    found = fmt::format("mpirun (process {}) is stopped", launcher_);
  for (const auto& line : lines_) {
    if (is_long(line->process, line->stopped)) found = describe(*line) + " is stopped";
    count += line->stopped ? 1 : 0;
  }
  return lines_.empty() || count < lines_.size() ? found : "";
}

// Ranks with much memory take their time to end: as long as they free some, they do. Of a process that the
// system takes down the pages are gone at once, and the process once all of them were given back.
void RankWatch::look_at_memory() {
  int64_t pages = 0;
  bool ends = false;
  for (const auto& line : lines_) {
    const std::optional<int64_t> own = own_pages_of(line->process);
    if (!own) return;
    ends = ends || *own == 0;
    pages += *own;
  }
  if (ends || !least_pages_ || pages + kPagesFreed <= *least_pages_) {
    at_.freed = now_;
    least_pages_ = pages;
  }
}

std::string RankWatch::trouble() {
  const double now = now_ = waited_.seconds();
  if (at_.ended > 0) look_at_memory();
  if (at_.lost > 0 && now > at_.lost + deadlines_.loss) return lost_ + " was lost";
  if (at_.ended > 0 && now > std::min(at_.freed + deadlines_.end, at_.ended + deadlines_.ends))
    return fmt::format("{} does not end: a rank ended {:.0f} s ago, and for {:.0f} s no memory was freed",
                       lines_.empty() ? "mpirun" : describe(*lines_.front()), now - at_.ended,
                       now - at_.freed);
  if (ready_ < ranks_ && at_.lost == 0 && at_.ended == 0 && now > at_.news + deadlines_.start)
    return fmt::format("{} ranks did not find each other within {:.0f} s: {}", ranks_, deadlines_.start,
                       missing());
  // mpirun may wait forever where ranks end that look for each other.
  if (stops_ && ready_ < ranks_ && now > at_.asked + deadlines_.early)
    return fmt::format("{} did not end within {:.0f} s of the request to stop",
                       lines_.empty() ? "mpirun" : describe(*lines_.front()), deadlines_.early);
  return stopped();
}

bool RankWatch::kill_all() {
  for (const auto& line : lines_) line->signal(SIGKILL);
  return !lines_.empty();
}

}  // namespace temper::collectives
