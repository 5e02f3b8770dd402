#include "base/tracing/trace.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/text.h"
#include "base/threads/per_thread.h"

namespace temper::trace {
namespace {

struct Open {
  Event event;
  OpWork work;
  bool settles = false;
  double inside = 0;  // seconds in spans that were opened in it
};

struct Recording {
  std::function<void()> settle;
  Listener* listener = nullptr;  // null: events are kept
  double began = 0;
  std::vector<Open> open;
  std::vector<Event> events;
};

const PerThread<Recording> kRecordings;
thread_local Recording* recording = nullptr;  // of this thread; null: none is under way

}  // namespace

void start(std::function<void()> settle) {
  recording = &kRecordings.get();
  *recording = {
      .settle = std::move(settle), .listener = nullptr, .began = seconds_now(), .open = {}, .events = {}};
}

std::vector<Event> stop() {
  invariant(recording != nullptr && recording->open.empty(), "a recording stops outside of its spans");
  return std::move(std::exchange(recording, nullptr)->events);
}

bool on() { return recording != nullptr; }

Listener::Scope::Scope(Listener& listener) {
  invariant(recording == nullptr, "one recording at a time");
  start();
  recording->listener = &listener;
}

Listener::Scope::~Scope() { recording = nullptr; }

void Span::open(std::string_view name, const OpWork& work, bool settles) {
  opened_ = true;
  if (settles && recording->settle) recording->settle();
  Open span;
  span.event.name = name;
  span.event.work = work.forward;
  span.event.depth = static_cast<int>(recording->open.size());
  span.work = work;
  span.settles = settles;
  if (recording->listener != nullptr) recording->listener->begins(name, work.forward);
  span.event.begin = seconds_now() - recording->began;
  recording->open.push_back(std::move(span));
}

void Span::close() {
  if (recording == nullptr || recording->open.empty()) return;  // the recording was stopped by an error
  if (recording->open.back().settles && recording->settle) recording->settle();
  Open span = std::move(recording->open.back());
  recording->open.pop_back();
  if (recording->listener != nullptr) return recording->listener->ends(span.event.name);
  span.event.end = seconds_now() - recording->began;
  const double seconds = span.event.end - span.event.begin;
  span.event.self = seconds - span.inside;
  if (!recording->open.empty()) recording->open.back().inside += seconds;
  recording->events.push_back(std::move(span.event));
}

Source source() {
  if (recording)
    for (auto span = recording->open.rbegin(); span != recording->open.rend(); ++span)
      if (span->settles) return {span->event.name, std::exchange(span->work.backward, {})};
  return {};
}

std::string chrome_lane(const std::vector<Event>& events, int rank) {
  std::string items = Json(Json::Object{{"name", "process_name"},
                                        {"ph", "M"},
                                        {"pid", rank},
                                        {"args", Json::Object{{"name", fmt::format("rank {}", rank)}}}})
                          .dump();
  for (const Event& event : events) {
    Json entry = Json::Object{{"name", event.name},
                              {"ph", "X"},
                              {"pid", rank},
                              {"tid", 1},
                              {"ts", event.begin * 1e6},
                              {"dur", (event.end - event.begin) * 1e6}};
    const double bytes = event.work.bytes + event.work.sent;
    if (event.work.flops > 0 || bytes > 0)
      entry.set("args", Json::Object{{"gflop", event.work.flops / 1e9}, {"megabytes", bytes / 1e6}});
    items += ",\n" + entry.dump();
  }
  return items;
}

std::string chrome_trace(const std::vector<std::string>& lanes) {
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + join(lanes, ",\n") + "\n]}\n";
}

}  // namespace temper::trace
