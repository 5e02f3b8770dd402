#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"

namespace temper::collectives {

// The messages between this process and the others of a run. One for a process, used from one thread.
//
// What waits here waits with a deadline, and hears at once when another rank has stopped with an error: MPI's
// own collectives do neither.
class Network {
 public:
  Network();   // starts MPI; a kResources Error where the ranks cannot reach each other
  ~Network();  // ends it, where no rank has stopped
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // One message to or from another rank of the run.
  struct Message {
    int rank;
    void* data;
    int64_t bytes;
    // Of one that is received and has bytes: called when it has arrived, for the next one of that rank, where
    // there is one. An Error of it ends the exchange.
    std::function<std::optional<Message>()> then = nullptr;
  };
  // Sends and receives these; returns when all have arrived. Messages between two ranks under one tag arrive
  // in the order in which they were sent. Throws StoppedByAnother, or an Error of kind kResources that names
  // the ranks which did not come to `what()` within the deadline, in seconds.
  //
  // `memory` owns all that the messages point to. Where this throws, messages that can no longer be called
  // back still read or write it while the other ranks are notified: it then lives as long as the process.
  void exchange(int tag, std::span<const Message> sent, std::span<const Message> received,
                std::shared_ptr<const void> memory, double deadline,
                const std::function<std::string()>& what);

  // Receives why a rank stops, and throws it.
  void receive_stop(int rank);

  // Tells all others why this rank stops. They throw StoppedByAnother when they wait next.
  void stop(const std::string& reason, ErrorKind kind);
  // Tells all others that this rank stops because another did, and has nothing to report.
  void stop_silently();
  // After `stop`: whether a rank below this one has stopped by itself, too. The lowest one reports for all.
  // Waits until each of them has said `stop` or `stop_silently`; for one that does neither, as long as this.
  bool lower_rank_stopped(double seconds) const;

 private:
  struct Handles;
  class Open;

  void find_others();
  void send_stop_to_all(const std::string& reason, int32_t kind);

  const std::unique_ptr<Handles> handles_;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
};

}  // namespace temper::collectives
