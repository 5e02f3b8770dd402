#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace temper::reports {

struct PlotPoint {
  double step = 0;
  double value = 0;
};

struct LossSeries {
  enum class Style {
    kTrain,  // the raw values in a light colour under their average
    kEval,   // a line with a dot at each value
  };
  std::string name;
  std::vector<PlotPoint> points;  // in the order of steps
  Style style = Style::kTrain;
};

// What shares an axis of values.
struct Panel {
  std::string label;  // of the axis
  std::vector<LossSeries> series;
};

// An SVG picture of values over steps: panels below each other, the first one the largest. Values that are
// not finite leave a gap, and a remark counts them.
std::string draw_curves(std::string_view title, const std::vector<Panel>& panels);
void write_curves(const std::string& path, std::string_view title, const std::vector<Panel>& panels);

// Averages weighted by distance on both sides, halved every `half_life` points, so that the curve does not
// lag; values that are not finite are stepped over and stay as they are.
std::vector<PlotPoint> smooth(const std::vector<PlotPoint>& points, double half_life);

}  // namespace temper::reports
