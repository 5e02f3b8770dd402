#include "reports/svg.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "base/xml.h"

namespace temper::reports {
namespace {

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string opacity_attribute(double opacity) {
  return opacity < 1 ? fmt::format(" stroke-opacity=\"{:g}\"", opacity) : "";
}

}  // namespace

Svg::Svg(double width, double height) {
  out_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} "
      "{1:g}\" "
      "font-family=\"Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view colour, double width,
               double opacity) {
  out_ += fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-width=\"{:g}\"{}/>\n",
      x1, y1, x2, y2, colour, width, opacity_attribute(opacity));
}

void Svg::dot(double x, double y, double radius, std::string_view colour) {
  out_ += fmt::format(
      "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\" stroke=\"#ffffff\" "
      "stroke-width=\"1.2\"/>\n",
      x, y, radius, colour);
}

void Svg::path(const std::string& data, std::string_view colour, double width, double opacity) {
  if (data.empty()) return;
  out_ += fmt::format(
      "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-linejoin=\"round\" "
      "stroke-linecap=\"round\"{}/>\n",
      data, colour, width, opacity_attribute(opacity));
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  const std::string turn = style.upright ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "";
  out_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\" text-anchor=\"{}\"{}{}>{}</text>\n", x,
      y, style.size, style.colour, style.anchor, style.bold ? " font-weight=\"600\"" : "", turn,
      escape_xml(text));
}

void Svg::begin_clip(double x, double y, double width, double height) {
  out_ += fmt::format(
      "<clipPath id=\"clip{4}\"><rect x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" "
      "height=\"{3:.1f}\"/></clipPath>\n"
      "<g clip-path=\"url(#clip{4})\">\n",
      x, y, width, height, ++clips_);
}

void Svg::end_clip() { out_ += "</g>\n"; }

std::string Svg::finish() {
  out_ += "</svg>\n";
  return std::move(out_);
}

std::string escape_xml(std::string_view text) {
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    for (size_t i = 0; i < valid; ++i) {
      const char c = text[i];
      const std::string_view rest = text.substr(i, 3);
      if (!xml_entity(c).empty())
        out += xml_entity(c);
      else if (c == '"')
        out += "&quot;";
      else if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n')
        out += kReplacement;
      else if (rest == "\xEF\xBF\xBE" || rest == "\xEF\xBF\xBF")
        out += kReplacement, i += 2;
      else
        out += c;
    }
    if (valid < text.size()) out += kReplacement;
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return out;
}

std::string shorten(std::string_view text, size_t longest) {
  if (count_characters(text) <= longest) return std::string(text);
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end)
    if (starts_character(text[end]) && ++seen == longest) break;
  return std::string(text.substr(0, end)) + "…";
}

double text_width(std::string_view text) { return 6.6 * static_cast<double>(count_characters(text)); }

}  // namespace temper::reports
