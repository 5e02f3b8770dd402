#include "collectives/mpi/network.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/signals/stop_signals.h"
#include "base/text.h"
#include "base/waited.h"
#include "collectives/group.h"
#include "collectives/hosts.h"
#include "collectives/mpi/library.h"

namespace temper::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one message of MPI, which counts in int
constexpr int kStopTag = 1, kStartTag = 2;
constexpr double kStart = 60;       // seconds, for each rank to hear of all others
constexpr int32_t kGivesWay = -1;   // in the place of an error's kind
constexpr double kGrace = 0.5;      // seconds, for what was sent before its sender stopped
constexpr double kAskedWait = 0.5;  // seconds; mpirun kills ranks a second after it has asked them to stop

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) fail_resources("[MPI] {} failed with code {}", call, code);
}

// What a rank that stops sends to all others: small enough to be sent before it is asked for.
struct Stop {
  int32_t kind = 0;
  std::array<char, 2044> reason{};
};

// A rank that waits lets others have the core: soon where ranks share cores, and for long where it waits
// long. Where another program has taken the core for longer than a rank works between two messages, it sleeps
// instead for a while: whoever yields waits for that program's whole slice each time, and whoever wakes comes
// first.
class Patience {
 public:
  void wait() {
    ++turns_;
    if (turns_ < 200) return;
    if (turns_ < 5000 && waits_asleep_ == 0) {
      const auto before = Clock::now();
      sched_yield();
      if (Clock::now() - before > kLongAway) waits_asleep_ = kWaitsAsleep;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  ~Patience() { waits_asleep_ = std::max(0, waits_asleep_ - 1); }

 private:
  static constexpr std::chrono::milliseconds kLongAway{2};
  static constexpr int kWaitsAsleep = 100;
  static inline int waits_asleep_ = 0;  // of this process; one thread exchanges messages
  int turns_ = 0;
};

}  // namespace

struct Network::Handles {
  const Mpi& mpi;
  MPI_Comm messages = nullptr, stops = nullptr;
  std::optional<StoppedByAnother> stopped = {};  // which has been heard

  std::set<int> gave_way = {};

  // What `source` has said of stopping, where it has.
  std::optional<StoppedByAnother> heard(int source) {
    int there = 0;
    MPI_Status status;
    check(mpi.iprobe(source, kStopTag, stops, &there, &status), "MPI_Iprobe");
    if (there == 0) return std::nullopt;
    Stop stop;
    check(mpi.recv(&stop, sizeof stop, mpi.byte, status.MPI_SOURCE, kStopTag, stops, MPI_STATUS_IGNORE),
          "MPI_Recv");
    if (stop.kind == kGivesWay) {
      gave_way.insert(status.MPI_SOURCE);
      return std::nullopt;
    }
    return StoppedByAnother(status.MPI_SOURCE, stop.reason.data(), static_cast<ErrorKind>(stop.kind));
  }
};

// Messages that are under way.
class Network::Open {
 public:
  // `memory` owns what the messages point to.
  Open(const Handles& handles, std::shared_ptr<const void> memory)
      : handles_(handles), kept_(new Kept{std::move(memory), nullptr}) {}
  // Receives that nothing has come for are called back. MPI does not take back what is sent, nor what has
  // begun to come: its memory is never given back.
  ~Open() {
    std::erase_if(requests_, [&](Request& request) {
      if (request.received) handles_.mpi.cancel(&request.handle);
      int done = 0;
      return handles_.mpi.test(&request.handle, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    });
    if (requests_.empty()) return;
    static Kept* all = nullptr;  // one thread exchanges messages
    kept_->next = std::exchange(all, kept_.get());
    static_cast<void>(kept_.release());
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  void send(const Message& message, int tag, MPI_Comm where) {
    post(message, false, [&](void* data, int count, MPI_Request* request) {
      return handles_.mpi.isend(data, count, handles_.mpi.byte, message.rank, tag, where, request);
    });
  }
  void receive(const Message& message, int tag, MPI_Comm where) {
    post(message, true, [&](void* data, int count, MPI_Request* request) {
      return handles_.mpi.irecv(data, count, handles_.mpi.byte, message.rank, tag, where, request);
    });
  }

  // `receive_next`: what a message that has arrived asks for.
  template <class ReceiveNext>
  bool are_done(const ReceiveNext& receive_next) {
    int code = MPI_SUCCESS;
    std::vector<Next> arrived;
    std::erase_if(requests_, [&](Request& request) {
      int done = 0;
      const int own = handles_.mpi.test(&request.handle, &done, MPI_STATUS_IGNORE);
      if (own != MPI_SUCCESS) code = own;
      if (done != 0 && request.then) arrived.push_back(std::move(request.then));
      return done != 0;
    });
    check(code, "MPI_Test");
    for (const Next& then : arrived)
      if (const std::optional<Message> next = then()) receive_next(*next);
    return requests_.empty();
  }
  bool are_done() {
    return are_done([](const Message&) {});
  }

  // "rank 1": those that have not sent what is awaited; what this rank sends may lie in the other's queue.
  std::string late() const {
    std::set<int> ranks;
    for (const bool received : {true, false})
      for (const Request& request : requests_)
        if (request.received == received && (received || ranks.empty())) ranks.insert(request.rank);
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(with_host(rank));
    return (names.size() == 1 ? "rank " : "ranks ") + join(names);
  }

 private:
  struct Kept {
    std::shared_ptr<const void> memory;
    Kept* next;
  };
  using Next = std::function<std::optional<Message>()>;
  struct Request {
    MPI_Request handle;
    int rank;
    bool received;
    Next then;
  };

  template <class Start>
  void post(const Message& message, bool received, const Start& start) {
    for (int64_t at = 0; at < message.bytes; at += kMostBytes) {
      const bool last = message.bytes - at <= kMostBytes;
      Request& request =
          requests_.emplace_back(nullptr, message.rank, received, last ? message.then : nullptr);
      const int code = start(static_cast<std::byte*>(message.data) + at,
                             static_cast<int>(std::min(kMostBytes, message.bytes - at)), &request.handle);
      if (code != MPI_SUCCESS) requests_.pop_back();
      check(code, received ? "MPI_Irecv" : "MPI_Isend");
    }
  }

  const Handles& handles_;
  std::unique_ptr<Kept> kept_;
  std::vector<Request> requests_;
};

Network::Network() : handles_(new Handles{mpi()}) {
  const Mpi& mpi = handles_->mpi;
  int given = 0;
  check(mpi.init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
  check(mpi.comm_rank(mpi.world, &rank_), "MPI_Comm_rank");
  check(mpi.comm_size(mpi.world, &size_), "MPI_Comm_size");
  find_others();
  check(mpi.comm_dup(mpi.world, &handles_->messages), "MPI_Comm_dup");
  check(mpi.comm_dup(mpi.world, &handles_->stops), "MPI_Comm_dup");
}

// On hosts that cannot reach each other MPI's own calls wait forever.
void Network::find_others() {
  const auto bytes = std::make_shared<std::vector<char>>(static_cast<size_t>(size_) + 1);
  Open open(*handles_, bytes);
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) {
      open.receive({rank, &(*bytes)[static_cast<size_t>(rank)], 1}, kStartTag, handles_->mpi.world);
      open.send({rank, &bytes->back(), 1}, kStartTag, handles_->mpi.world);
    }
  Waited waited;
  for (Patience patience; !open.are_done(); patience.wait()) {
    if (waited.seconds() < kStart) continue;
    // Most often all ranks see this: the first one reports it, and the launcher ends the others.
    if (rank_ != 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    fail_resources(
        "[MPI] {} did not answer rank {} within {:.0f} s of the start; on several hosts, name the network "
        "interface that joins them (OMPI_MCA_btl_tcp_if_include=eth0), and let TCP through between them",
        open.late(), rank_, kStart);
  }
}

Network::~Network() {
  if (!broken_) handles_->mpi.finalize();
}

void Network::exchange(int tag, std::span<const Message> sent, std::span<const Message> received,
                       std::shared_ptr<const void> memory, double deadline,
                       const std::function<std::string()>& what) {
  if (broken_)
    throw GroupBroken(fmt::format("[collectives] {} comes after a rank has stopped", what()),
                      ErrorKind::kResources);
  Open open(*handles_, std::move(memory));
  const auto receive = [&](const Message& message) { open.receive(message, tag, handles_->messages); };
  for (const Message& message : received) receive(message);
  for (const Message& message : sent) open.send(message, tag, handles_->messages);
  Waited waited;
  std::optional<double> asked;  // when the signal was seen
  bool tells = false;
  double until = handles_->stopped ? kGrace : deadline;
  for (Patience patience; !open.are_done(receive); patience.wait()) {
    // What the other did before it stopped may still arrive: this rank comes as far as the others.
    if (!handles_->stopped) {
      handles_->stopped = handles_->heard(MPI_ANY_SOURCE);
      if (handles_->stopped) until = std::min(until, waited.seconds() + kGrace);
    }
    if (!asked && stop_is_requested()) asked = waited.seconds();
    if (asked && !tells && waited.seconds() > *asked + kAskedWait) {
      tells = true;
      log_warning(
          fmt::format("a signal came while {} is awaited in {}; if the launcher ends the run now, run "
                      "the same command to resume from the newest checkpoint",
                      open.late(), what()));
    }
    if (waited.seconds() < until) continue;
    broken_ = true;
    if (handles_->stopped) throw StoppedByAnother(*handles_->stopped);
    throw GroupBroken(
        fmt::format("[collectives] {} did not come to {} within {:.3g} s", open.late(), what(), deadline),
        ErrorKind::kResources);
  }
}

void Network::receive_stop(int rank) {
  constexpr std::chrono::seconds kAtMost{10};
  broken_ = true;
  const auto until = Clock::now() + kAtMost;
  for (Patience patience; Clock::now() < until; patience.wait()) {
    if (!handles_->stopped) handles_->stopped = handles_->heard(rank);
    if (handles_->stopped) throw StoppedByAnother(*handles_->stopped);
  }
}

void Network::stop(const std::string& reason, ErrorKind kind) {
  send_stop_to_all(reason, static_cast<int32_t>(kind));
}

void Network::stop_silently() { send_stop_to_all("", kGivesWay); }

void Network::send_stop_to_all(const std::string& reason, int32_t kind) {
  broken_ = true;
  const auto stop = std::make_shared<Stop>();
  stop->kind = kind;
  std::memcpy(stop->reason.data(), reason.data(), std::min(reason.size(), stop->reason.size() - 1));
  Open open(*handles_, stop);
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) open.send({rank, stop.get(), sizeof(Stop)}, kStopTag, handles_->stops);
  // A rank that does not come must not hold this one.
  const auto until = Clock::now() + std::chrono::seconds(1);
  for (Patience patience; !open.are_done() && Clock::now() < until; patience.wait())
    ;
}

bool Network::lower_rank_stopped(double seconds) const {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  const auto is_silent = [&](int rank) { return !handles_->gave_way.contains(rank); };
  for (Patience patience; Clock::now() < until; patience.wait()) {
    bool waits = false;
    for (int rank = 0; rank < rank_; ++rank) {
      if (is_silent(rank) && handles_->heard(rank)) return true;
      waits = waits || is_silent(rank);
    }
    if (!waits) return false;
  }
  return false;
}

}  // namespace temper::collectives
