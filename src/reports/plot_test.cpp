#include "reports/plot.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "reports/axis.h"
#include "reports/svg.h"

namespace temper::reports {
namespace {

using Style = LossSeries::Style;

size_t count(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Elements are balanced and quotes closed; enough of XML for what an Svg writes.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at)) {
    const size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    ASSERT_EQ(count(tag, "\"") % 2, 0u) << tag;
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag.front() == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end;
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(count(xml, "nan"), 0u);
  EXPECT_EQ(count(xml, "inf"), 0u);
}

LossSeries series_of(std::vector<double> values, Style style = Style::kTrain) {
  LossSeries series{"train", {}, style};
  for (const double value : values)
    series.points.push_back({static_cast<double>(series.points.size()), value});
  return series;
}

TEST(Plot, HandlesEveryShapeOfData) {
  const double huge = 1e308;
  for (const std::vector<double>& values : std::vector<std::vector<double>>{{},
                                                                            {1},
                                                                            {NAN},
                                                                            {0, 0, 0},
                                                                            {1, NAN, INFINITY, 2},
                                                                            {1e-12, 2e-12},
                                                                            {1, 1 + 1e-15},
                                                                            {huge, -huge},
                                                                            {-3, 5},
                                                                            std::vector<double>(30, 2.0),
                                                                            std::vector<double>(30, NAN),
                                                                            {1e30, 1e-30}})
    for (const Style style : {Style::kTrain, Style::kEval})
      expect_well_formed(draw_curves("t", {{"loss", {series_of(values, style)}}}));
  expect_well_formed(draw_curves("", {}));
}

TEST(Plot, DrawsRawSmoothedAndEvalPoints) {
  std::vector<double> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 3 + std::sin(static_cast<double>(i));
  const std::string svg =
      draw_curves("run", {{"loss", {series_of(values), series_of({3, 2, 1}, Style::kEval)}}});
  EXPECT_EQ(count(svg, "<path "), 3u);
  EXPECT_EQ(count(svg, "<circle "), 4u);  // three values and the legend
  EXPECT_EQ(count(svg, "stroke-opacity"), 2u);
}

TEST(Plot, NotFiniteValuesAreGapsAndCounted) {
  const std::string svg = draw_curves("run", {{"loss", {series_of({1, 2, NAN, 3, 4, INFINITY, 5})}}});
  EXPECT_EQ(count(svg, "h0"), 3u);  // one stroke before, between and behind the gaps
  EXPECT_NE(svg.find("2 values are not finite"), std::string::npos);
}

TEST(Plot, PanelsAreBelowEachOther) {
  const std::string one = draw_curves("run", {{"reward", {series_of({1, 2, 3})}}});
  const std::string svg =
      draw_curves("run", {{"reward", {series_of({1, 2, 3})}}, {"loss", {series_of({5, 4})}}});
  expect_well_formed(svg);
  EXPECT_NE(one.find("height=\"500\""), std::string::npos);
  EXPECT_NE(svg.find("height=\"750\""), std::string::npos);
  EXPECT_EQ(count(svg, "<path "), 2u);
  for (const char* const text : {">reward<", ">loss<", "id=\"clip1\"", "id=\"clip2\"", "url(#clip2)"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  EXPECT_EQ(count(svg, ">step<"), 2u);
  for (const char* const place : {"y=\"486.0\"", "y=\"736.0\""})  // of "step", below the axis of each
    EXPECT_NE(svg.find(place), std::string::npos) << place;
}

TEST(Plot, LongRunsStaySmall) {
  std::vector<double> values(300000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 7919 % 1000);
  EXPECT_LT(draw_curves("run", {{"loss", {series_of(values)}}}).size(), 150000u);
}

TEST(Plot, TextIsEscapedAndCut) {
  const std::string svg = draw_curves("<a> & \"b\" \x01\xFF", {{"loss", {{"x<y", {}, Style::kTrain}}}});
  EXPECT_NE(svg.find("&lt;a&gt; &amp; &quot;b&quot; \xEF\xBF\xBD\xEF\xBF\xBD<"), std::string::npos);
  expect_well_formed(svg);
  EXPECT_EQ(shorten("日本語", 3), "日本語");
  EXPECT_EQ(shorten("日本語", 2), "日…");
}

TEST(Plot, SmoothingDoesNotLag) {
  std::vector<double> line(101);
  for (size_t i = 0; i < line.size(); ++i) line[i] = static_cast<double>(i);
  EXPECT_NEAR(smooth(series_of(line).points, 3)[50].value, 50, 1e-6);
  const std::vector<PlotPoint> gap = smooth(series_of({2, NAN, 2}).points, 3);
  EXPECT_NEAR(gap[0].value, 2, 1e-12);
  EXPECT_TRUE(std::isnan(gap[1].value));
  EXPECT_NEAR(gap[2].value, 2, 1e-12);
}

TEST(Plot, IsWrittenToAFile) {
  const TemporaryDirectory folder;
  write_curves(folder / "loss.svg", "run", {{"loss", {series_of({2, 1})}}});
  EXPECT_TRUE(read_file(folder / "loss.svg").starts_with("<svg "));
}

TEST(Axis, TicksAreRound) {
  const Axis values = make_axis(1.37, 3.9, 6, AxisKind::kValues);
  EXPECT_EQ(values.low, 1.0);
  EXPECT_EQ(values.high, 4.0);
  EXPECT_EQ(values.ticks.size(), 7u);
  EXPECT_EQ(tick_label(values, 1.5), "1.5");
  const Axis steps = make_axis(1, 3, 8, AxisKind::kSteps);
  EXPECT_EQ(steps.ticks, (std::vector<double>{1, 2, 3}));
  // Where the data begin, unless that is close to the next.
  EXPECT_EQ(make_axis(1, 600, 8, AxisKind::kSteps).ticks,
            (std::vector<double>{1, 100, 200, 300, 400, 500, 600}));
  EXPECT_EQ(make_axis(90, 600, 8, AxisKind::kSteps).ticks,
            (std::vector<double>{100, 200, 300, 400, 500, 600}));
  EXPECT_EQ(tick_label(make_axis(0, 20000, 8, AxisKind::kSteps), 5000), "5k");
  EXPECT_EQ(tick_label(make_axis(-1, 1, 4, AxisKind::kValues), -1e-17), "0.0");
}

}  // namespace
}  // namespace temper::reports
