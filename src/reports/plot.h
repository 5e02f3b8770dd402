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

// An SVG picture of losses over steps. Values that are not finite leave a gap, and a remark counts them.
std::string draw_loss_curve(std::string_view title, const std::vector<LossSeries>& series);
void write_loss_curve(const std::string& path, std::string_view title, const std::vector<LossSeries>& series);

// Averages weighted by distance on both sides, halved every `half_life` points, so that the curve does not
// lag; values that are not finite are stepped over and stay as they are.
std::vector<PlotPoint> smooth(const std::vector<PlotPoint>& points, double half_life);

}  // namespace temper::reports
