#include "reports/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/files.h"
#include "reports/axis.h"
#include "reports/svg.h"

namespace temper::reports {
namespace {

constexpr double kWidth = 880, kHeight = 500, kNextHeight = 250;
constexpr double kLeft = 76, kRight = 28, kTop = 52, kNextTop = 16, kBottom = 58;
constexpr double kLegendRow = 22;
constexpr size_t kLongestTitle = 72, kLongestName = 40;
constexpr const char* kColours[] = {"#2f6fd6", "#e4572e", "#2a9d6f", "#8e5bd0", "#c99700", "#d1478c"};
constexpr const char* kInk = "#1f2430";
constexpr const char* kFaint = "#6b7280";
constexpr const char* kGrid = "#e6e9ef";
// Fewer points are drawn as they are: an average would only lag behind them.
constexpr size_t kFewestSmoothed = 20;
constexpr double kLargest = 1e100;  // beyond, an axis would overflow

// A series with what is drawn of it.
struct Curve {
  std::string name;
  std::string colour;
  std::vector<PlotPoint> faint;  // empty when the points are drawn as they are
  std::vector<PlotPoint> strong;
  bool dots = false;
};

struct Frame {
  Axis x, y;
  double top = 0, bottom = 0;

  double px(double step) const { return kLeft + x.fraction(step) * (kWidth - kLeft - kRight); }
  double py(double value) const { return bottom - y.fraction(value) * (bottom - top); }
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

bool drawable(const PlotPoint& point) {
  return std::abs(point.value) < kLargest && std::isfinite(point.step);
}

std::vector<Curve> curves_of(const std::vector<LossSeries>& series) {
  std::vector<Curve> curves;
  for (size_t i = 0; i < series.size(); ++i) {
    const LossSeries& one = series[i];
    Curve curve{shorten(one.name, kLongestName), kColours[i % std::size(kColours)], {}, one.points, false};
    curve.dots = one.style == LossSeries::Style::kEval;
    if (one.style == LossSeries::Style::kTrain && one.points.size() >= kFewestSmoothed) {
      curve.faint = one.points;
      curve.strong = smooth(one.points, std::max(2.0, static_cast<double>(one.points.size()) / 150));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

// A few spikes of the raw values may leave the picture, since they would flatten everything else; where a run
// starts may not.
void add_faint(Range& range, const std::vector<PlotPoint>& points) {
  std::vector<double> values;
  for (const PlotPoint& point : points)
    if (drawable(point)) values.push_back(point.value);
  if (values.empty()) return;
  range.add(values.front());
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 100;
  range.add(values[cut]);
  range.add(values[values.size() - 1 - cut]);
}

// Of all panels, so that steps are below each other.
Axis axis_of_steps(const std::vector<Panel>& panels) {
  Range x;
  for (const Panel& panel : panels)
    for (const LossSeries& one : panel.series)
      for (const PlotPoint& point : one.points)
        if (drawable(point)) x.add(point.step);
  return x.empty() ? make_axis(0, 10, 5, AxisKind::kSteps) : make_axis(x.low, x.high, 8, AxisKind::kSteps);
}

Axis axis_of_values(const std::vector<Curve>& curves, int ticks) {
  Range y;
  for (const Curve& curve : curves) {
    add_faint(y, curve.faint);
    for (const PlotPoint& point : curve.strong)
      if (drawable(point)) y.add(point.value);
  }
  return y.empty() ? make_axis(0, 1, 5, AxisKind::kValues)
                   : make_axis(y.low, y.high, ticks, AxisKind::kValues);
}

// At most the lowest and the highest value of each half pixel column, in their order.
std::vector<PlotPoint> thinned(const std::vector<PlotPoint>& points, const Frame& frame) {
  std::vector<PlotPoint> out;
  const auto column = [&](const PlotPoint& point) { return std::floor(2 * frame.px(point.step)); };
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    size_t low = begin, high = begin;
    for (end = begin + 1; end < points.size() && drawable(points[end]) && drawable(points[begin]) &&
                          column(points[end]) == column(points[begin]);
         ++end) {
      if (points[end].value < points[low].value) low = end;
      if (points[end].value > points[high].value) high = end;
    }
    out.push_back(points[std::min(low, high)]);
    if (low != high) out.push_back(points[std::max(low, high)]);
  }
  return out;
}

std::string path_data(const std::vector<PlotPoint>& points, const Frame& frame) {
  std::string data;
  bool pen_down = false;
  for (const PlotPoint& point : thinned(points, frame)) {
    if (!drawable(point)) {
      pen_down = false;
      continue;
    }
    // "h0" makes a dot of a point between two gaps.
    data += fmt::format("{}{:.1f},{:.1f}{}", pen_down ? "L" : "M", frame.px(point.step),
                        frame.py(point.value), pen_down ? "" : "h0");
    pen_down = true;
  }
  return data;
}

void draw_axes(Svg& svg, const Frame& frame, const std::string& label) {
  const double right = kWidth - kRight, bottom = frame.bottom;
  for (const double tick : frame.y.ticks) {
    const double y = frame.py(tick);
    svg.line(kLeft, y, right, y, kGrid, 1);
    svg.text(kLeft - 10, y + 4, tick_label(frame.y, tick), {.colour = kFaint, .anchor = "end"});
  }
  for (const double tick : frame.x.ticks) {
    const double x = frame.px(tick);
    svg.line(x, bottom, x, bottom + 5, kFaint, 1);
    svg.text(x, bottom + 20, tick_label(frame.x, tick), {.colour = kFaint, .anchor = "middle"});
  }
  svg.line(kLeft, bottom, right, bottom, kFaint, 1);
  svg.text((kLeft + right) / 2, bottom + 44, "step", {.colour = kInk, .anchor = "middle"});
  svg.text(22, (frame.top + bottom) / 2, label, {.colour = kInk, .anchor = "middle", .upright = true});
}

// Its first row is at `y`. Returns the lower end of its rows.
double draw_legend(Svg& svg, const std::vector<Curve>& curves, double y) {
  if (curves.empty()) return y - 14;
  double x = kLeft;
  for (const Curve& curve : curves) {
    const double width = 34 + text_width(curve.name) + 22;
    if (x > kLeft && x + width > kWidth - kRight) {
      x = kLeft;
      y += kLegendRow;
    }
    if (!curve.faint.empty()) svg.line(x, y, x + 26, y, curve.colour, 9, 0.22);
    svg.line(x, y, x + 26, y, curve.colour, 2.2);
    if (curve.dots) svg.dot(x + 13, y, 3.6, curve.colour);
    svg.text(x + 34, y + 4, curve.name, {.colour = kInk});
    x += width;
  }
  return y + kLegendRow;
}

void draw_curves(Svg& svg, const std::vector<Curve>& curves, const Frame& frame) {
  svg.begin_clip(kLeft, frame.top - 2, kWidth - kLeft - kRight + 6, frame.bottom - frame.top + 4);
  for (const Curve& curve : curves) svg.path(path_data(curve.faint, frame), curve.colour, 1, 0.33);
  for (const Curve& curve : curves) svg.path(path_data(curve.strong, frame), curve.colour, 2.2);
  for (const Curve& curve : curves) {
    const bool lone = curve.strong.size() == 1;
    if (!curve.dots && !lone) continue;
    for (const PlotPoint& point : thinned(curve.strong, frame))
      if (drawable(point)) svg.dot(frame.px(point.step), frame.py(point.value), 3.6, curve.colour);
  }
  svg.end_clip();
}

size_t count_undrawable(const std::vector<LossSeries>& series) {
  size_t count = 0;
  for (const LossSeries& one : series)
    count += static_cast<size_t>(
        std::count_if(one.points.begin(), one.points.end(), [](const PlotPoint& p) { return !drawable(p); }));
  return count;
}

void draw_panel(Svg& svg, const Panel& panel, const Axis& steps, double top, double height) {
  constexpr int kTicks = 6, kTicksOfLow = 4;
  const std::vector<Curve> curves = curves_of(panel.series);
  const Axis values = axis_of_values(curves, height < kHeight ? kTicksOfLow : kTicks);
  const double legend = top + (top == 0 ? kTop : kNextTop);
  const Frame frame{steps, values, draw_legend(svg, curves, legend), top + height - kBottom};
  draw_axes(svg, frame, panel.label);
  draw_curves(svg, curves, frame);
  if (const size_t count = count_undrawable(panel.series); count > 0)
    svg.text(kWidth - kRight, top + height - 14,
             fmt::format("{} value{} not finite", count, count == 1 ? " is" : "s are"),
             {.colour = "#c0392b", .anchor = "end"});
}

}  // namespace

std::vector<PlotPoint> smooth(const std::vector<PlotPoint>& points, double half_life) {
  const double keep = std::exp2(-1 / half_life);
  std::vector<PlotPoint> out = points;
  std::vector<double> weights(points.size());
  // Forwards with each point itself, then backwards with the points behind it only.
  double sum = 0, weight = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!drawable(points[i])) continue;
    out[i].value = sum = keep * sum + points[i].value;
    weights[i] = weight = keep * weight + 1;
  }
  sum = weight = 0;
  for (size_t i = points.size(); i-- > 0;) {
    if (!drawable(points[i])) continue;
    out[i].value = (out[i].value + sum) / (weights[i] + weight);
    sum = keep * (sum + points[i].value);
    weight = keep * (weight + 1);
  }
  return out;
}

std::string draw_curves(std::string_view title, const std::vector<Panel>& panels) {
  Svg svg(kWidth, kHeight + kNextHeight * std::max(0.0, static_cast<double>(panels.size()) - 1));
  svg.text(kLeft, 28, shorten(title, kLongestTitle), {.colour = kInk, .size = 16, .bold = true});
  const Axis steps = axis_of_steps(panels);
  double top = 0;
  for (const Panel& panel : panels) {
    const double height = top == 0 ? kHeight : kNextHeight;
    draw_panel(svg, panel, steps, top, height);
    top += height;
  }
  return svg.finish();
}

void write_curves(const std::string& path, std::string_view title, const std::vector<Panel>& panels) {
  write_file(path, draw_curves(title, panels));
}

}  // namespace temper::reports
