#pragma once
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"

// Messages between two processes of one machine: JSON objects over a Unix socket, each behind its length in 4
// bytes (the machine's order), with or without a file descriptor.
namespace temper::exchange {

constexpr int64_t kLargestMessage = int64_t{64} << 20;  // bytes

class Connection {
 public:
  // Takes the socket over. `peer` is how errors speak of the other side ("the receiver").
  Connection(int socket, std::string peer, double deadline_seconds);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }
  // An Error (kResources) where the other side has closed the connection or died, or does not take the
  // message within the deadline.
  void send(const Json& message, int file = -1);
  struct Message {
    Json json;
    int file = -1;  // that came with it, which the caller closes
  };
  // The next message, once its first byte has come within the deadline and all of it within another one. An
  // Error as above, and for what is no object.
  Message receive();
  // Waits for the next message; false where the other side has closed the connection instead. An Error where
  // neither comes within the deadline, or `stop` becomes readable.
  bool waits_for_more(int stop);

 private:
  void wait(short event, double until) const;
  void read(void* to, size_t bytes, double until, int* file);
  void write(const void* from, size_t bytes, double until, int file);
  [[noreturn]] void fail_gone() const;

  int socket_;
  std::string peer_;
  double deadline_seconds_;
};

// A socket in the file system that others connect to; the file goes with it.
class Listener {
 public:
  // An Error where the path is too long, another process listens there, or the file is no socket. A socket
  // that a process left behind is replaced.
  explicit Listener(const std::string& path);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int socket() const { return socket_; }

 private:
  std::string path_;
  int socket_ = -1;
};

// A connected socket; an Error where nobody listens at the path.
int connect_to(const std::string& path);

}  // namespace temper::exchange
