#include "base/tracing/trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/json/json.h"

namespace temper::trace {
namespace {

OpWork product() { return {{6, 3}, {12, 9}}; }

TEST(Trace, CostsNothingAndKeepsNothingWhenOff) {
  int asked = 0;
  {
    const Span span("op", [&] {
      ++asked;
      return product();
    });
    EXPECT_EQ(source().name, "");
  }
  EXPECT_EQ(asked, 0);
  start();
  EXPECT_TRUE(stop().empty());
}

TEST(Trace, SpansNest) {
  int settled = 0;
  start([&] { ++settled; });
  {
    const Span step("step");
    {
      const Span op("op", product);
      const Source first = source();
      EXPECT_EQ(first.name, "op");
      EXPECT_EQ(first.backward.flops, 12);
      EXPECT_EQ(source().backward.flops, 0);  // counted once
      const Span inner("inner");
      EXPECT_EQ(source().name, "op");
    }
    std::thread([] { EXPECT_FALSE(on()); }).join();
  }
  const std::vector<Event> events = stop();
  EXPECT_FALSE(on());
  EXPECT_EQ(settled, 2);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "inner");
  EXPECT_EQ(events[1].name, "op");
  EXPECT_EQ(events[1].work.flops, 6);
  EXPECT_EQ(events[2].name, "step");
  EXPECT_EQ(events[0].depth, 2);
  double self = 0;
  for (const Event& event : events) {
    EXPECT_GE(event.begin, events[2].begin);
    EXPECT_LE(event.end, events[2].end);
    self += event.self;
  }
  EXPECT_NEAR(self, events[2].end - events[2].begin, 1e-9);
}

TEST(Trace, IsJsonThatViewersRead) {
  start();
  { const Span op("op", product); }
  const std::vector<Event> events = stop();
  const Json trace = Json::parse(chrome_trace({chrome_lane(events, 0), chrome_lane(events, 1)}), "trace");
  const auto& all = trace.at("traceEvents").as_array();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2].at("args").at("name").as_string(), "rank 1");
  EXPECT_EQ(all[3].at("pid").as_int(), 1);
  const Json& event = all[1];
  EXPECT_EQ(event.at("pid").as_int(), 0);
  EXPECT_EQ(event.at("name").as_string(), "op");
  EXPECT_EQ(event.at("ph").as_string(), "X");
  EXPECT_GE(event.at("dur").as_double(), 0);
  EXPECT_EQ(event.at("args").at("gflop").as_double(), 6e-9);
}

TEST(Trace, AnErrorInsideASpanEndsIt) {
  start();
  try {
    const Span span("op", product);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(stop().size(), 1u);
}

// Begins and ends of spans in their order, with the work of those that have some.
struct Heard final : Listener {
  std::string text;
  void begins(std::string_view span, const Work& work) override {
    text += std::string(span) + (work.flops > 0 ? "!(" : "(");
  }
  void ends(std::string_view) override { text += ")"; }
};

TEST(Trace, AListenerHearsOfSpansInTheirOrder) {
  Heard heard;
  {
    const Listener::Scope scope(heard);
    EXPECT_TRUE(on());
    const Span step("step");
    { const Span op("op", product); }
    EXPECT_EQ(heard.text, "step(op!()");
  }
  EXPECT_FALSE(on());
  EXPECT_EQ(heard.text, "step(op!())");
  { const Span later("later"); }
  EXPECT_EQ(heard.text, "step(op!())");
}

}  // namespace
}  // namespace temper::trace
