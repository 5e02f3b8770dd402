#pragma once
#include <optional>
#include <string>

#include "base/json/json.h"
#include "device/sharing.h"

// Messages between two processes of one machine: JSON objects over a Unix socket, each behind its length in 4
// bytes (the machine's order), with or without a file descriptor. Nothing here waits.
namespace temper::exchange {

constexpr int64_t kLargestMessage = int64_t{64} << 20;  // bytes

struct Message {
  Json json;                // an object
  device::Descriptor file;  // that came with it; -1: none
};

// Assembles messages from what a socket has. It takes memory as bytes arrive, whatever length was announced,
// and reads nothing behind the message, so that a block of a device's memory may follow.
class Inbox {
 public:
  // `peer` is how errors speak of the other side ("the receiver").
  explicit Inbox(std::string peer) : peer_(std::move(peer)) {}

  // Reads what is there, of one message at most, and returns it once it is whole. An Error for one of more
  // than `largest` bytes, for what is no object, for more than one descriptor, and (kResources) where the
  // other side is gone in the middle of a message.
  std::optional<Message> read(int socket, int64_t largest = kLargestMessage);
  bool is_empty() const { return length_bytes_ == 0; }  // no part of a message is here
  bool is_closed() const { return closed_; }            // by the other side, behind a whole message

 private:
  size_t receive(int socket, char* to, size_t bytes);
  Message take();

  std::string peer_;
  uint32_t length_ = 0;
  size_t length_bytes_ = 0;  // that have come of it
  std::string text_;
  device::Descriptor file_;
  bool closed_ = false;
};

// Messages on their way out.
class Outbox {
 public:
  explicit Outbox(std::string peer) : peer_(std::move(peer)) {}

  // An Error where the message is too large. The descriptor has to live until the message is out; it goes
  // with a message that waits for no other.
  void put(const Json& message, int file = -1);
  // As much as the socket takes. An Error (kResources) where the other side is gone.
  void write(int socket);
  bool is_empty() const { return at_ == bytes_.size(); }
  void clear();

 private:
  std::string peer_;
  std::string bytes_;
  size_t at_ = 0;  // the first that is not out yet
  int file_ = -1;
};

// An Error where the process at the other end of a connected socket is another user's.
void check_same_user(int socket, const std::string& peer);

}  // namespace temper::exchange
