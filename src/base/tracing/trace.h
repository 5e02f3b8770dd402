#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Where time goes: spans of one thread, kept while a recording runs. When none does, a span costs the reading
// of one variable.
namespace temper::trace {

// What must be done at least: floating-point operations of products, bytes that are read or written, and
// bytes that travel between ranks.
struct Work {
  double flops = 0, bytes = 0, sent = 0;
};

// An op's work, and that of its gradient.
struct OpWork {
  Work forward, backward;
};

struct Event {
  std::string name;
  double begin = 0, end = 0;  // seconds since the recording began
  int depth = 0;              // of the spans around it
  double self = 0;            // seconds, without the spans inside it
  Work work;
};

// Of the calling thread. `settle` is called at both ends of spans that have work: it waits until a device has
// done what was asked of it, so that its time falls into the span that asked.
void start(std::function<void()> settle = {});
std::vector<Event> stop();  // in the order of their ends
bool on();                  // in this thread

// Hears of the calling thread's spans as they begin and end, in place of a recording that keeps them: plans
// count with it what a run will do.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void begins(std::string_view span, const Work& work) = 0;
  virtual void ends(std::string_view span) = 0;

  // Listens until it ends. No recording may be under way.
  class Scope {
   public:
    explicit Scope(Listener& listener);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
};

class Span {
 public:
  explicit Span(std::string_view name) {
    if (on()) open(name, {}, false);
  }
  // work() gives an OpWork; it is asked only while a recording runs.
  template <class F>
  Span(std::string_view name, const F& work) {
    if (on()) open(name, work(), true);
  }
  ~Span() {
    if (opened_) close();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void open(std::string_view name, const OpWork& work, bool settles);
  void close();
  bool opened_ = false;
};

// The innermost span that is open and has work: what a closure recorded inside it is the gradient of. The
// work is counted once: an op that is composed of others records several closures.
struct Source {
  std::string name;
  Work backward;
};
Source source();

// For chrome://tracing and ui.perfetto.dev (the Trace Event Format, complete events): a rank's recording as
// the items of a list, in a lane of its own, and the file of all lanes.
std::string chrome_lane(const std::vector<Event>& events, int rank);
std::string chrome_trace(const std::vector<std::string>& lanes);

}  // namespace temper::trace
