#pragma once
#include <string>

#include "exchange/mailbox.h"

namespace temper::exchange {

// A sender's end of a connection: messages for which it waits.
class Connection {
 public:
  // Takes the socket over. `peer` is how errors speak of the other side ("the receiver").
  Connection(int socket, std::string peer, double deadline_seconds);

  int socket() const { return socket_.get(); }
  // An Error (kResources) where the other side has closed the connection or died, or does not take the
  // message within the deadline.
  void send(const Json& message, int file = -1);
  // The next message, once its first byte has come within the deadline and all of it within another one. An
  // Error as above, and for what is no object.
  Message receive();

 private:
  void wait(short event, double until) const;

  device::Descriptor socket_;
  std::string peer_;
  double deadline_seconds_;
  Inbox inbox_;
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

// A connected socket. An Error where no process listens at the path, or (kResources) where who listens does
// not answer within the deadline.
int connect_to(const std::string& path, double deadline_seconds);

}  // namespace temper::exchange
