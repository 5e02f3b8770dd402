#pragma once
#include <string>
#include <string_view>

namespace temper::reports {

struct TextStyle {
  std::string_view colour = "#000000";
  std::string_view anchor = "start";  // "start", "middle" or "end" stands at the given place
  double size = 12;
  bool bold = false;
  bool upright = false;  // turned to read from below
};

// An SVG picture, drawn in order on white. Lengths are in pixels, y grows downwards.
class Svg {
 public:
  Svg(double width, double height);
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width,
            double opacity = 1);
  void dot(double x, double y, double radius, std::string_view colour);  // with a white rim
  void path(const std::string& data, std::string_view colour, double width, double opacity = 1);
  void text(double x, double y, std::string_view text, const TextStyle& style);
  void begin_clip(double x, double y, double width, double height);
  void end_clip();
  std::string finish();

 private:
  std::string out_;
  int clips_ = 0;
};

// Text as XML content: markup is escaped; what XML cannot hold becomes U+FFFD.
std::string escape_xml(std::string_view text);

// At most `longest` characters, ending in … when cut.
std::string shorten(std::string_view text, size_t longest);

double text_width(std::string_view text);  // of 12-pixel text, roughly

}  // namespace temper::reports
