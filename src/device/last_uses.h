#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace temper::device {

// The streams of one device: sequences of work that run concurrently. Streams are numbered from 0, which is
// the one that everything runs on until another is used.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual int count() const = 0;    // that were ever used; a new one begins after all work asked for before
  virtual int current() const = 0;  // where the calling thread's work goes
  using Mark = std::shared_ptr<void>;
  // A point in a stream's work: what it was asked for so far. Null: the point can only be found later.
  virtual Mark mark(int stream) = 0;
  // The current stream's later work waits for that point; of a null mark, for all that the stream was asked
  // for until now.
  virtual void wait(int stream, const Mark& mark) = 0;
  // Waits until all streams have done what they were asked for.
  virtual void finish() noexcept = 0;
};

// Which streams used the blocks of one address range last, so that memory which one stream left serves
// another only after the work of the first. As long as there is one stream, it keeps nothing and asks for
// nothing. Not thread-safe: pools lock.
class LastUses {
 public:
  explicit LastUses(Streams* streams) : streams_(streams) {}  // null: a device without streams
  // A block was handed out, to the current stream: its work waits for those who had the memory before. Where
  // that fails, whoever takes the memory next waits.
  void taken(int64_t offset, int64_t bytes);
  // The current stream, too, works on a block that is handed out.
  void used(int64_t offset);
  // A block was freed; no more work on it is launched. Where that cannot be noted, waits for all work
  // instead.
  void given(int64_t offset, int64_t bytes) noexcept;
  // All work is done.
  void forget() { left_.clear(); }

 private:
  bool several() const { return streams_ != nullptr && streams_->count() > 1; }

  struct Left {
    int64_t end = 0;
    std::vector<std::pair<int, Streams::Mark>> marks;  // by stream
  };
  Streams* const streams_;
  std::map<int64_t, std::vector<int>> users_;  // of blocks that others than stream 0 work on, by offset
  std::map<int64_t, Left> left_;               // free memory by offset, in pieces that do not overlap
};

}  // namespace temper::device
