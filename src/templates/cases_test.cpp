// What Jinja2 makes of the templates in tests/templates (tools/oracles/make_template_cases.py), byte for
// byte.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "templates/template.h"

namespace temper::templates {
namespace {

constexpr size_t kForExpressions = 4;  // the dialogue
const std::string kFolder = TEMPER_SOURCE_DIR "/tests/templates/";

std::vector<Json> read_lines(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(Json::parse(std::string_view(text).substr(begin, end - begin), path));
    begin = end + 1;
  }
  return lines;
}

constexpr size_t kLongestText = 1500;  // longer ones are compared by hash

std::string hash_of(const std::string& text) {  // FNV-1a
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

// The result in the form of the file.
Json render(const std::string& source, const Json& values) {
  Json result = Json::Object();
  try {
    const Rendered rendered = Template::parse(source, "t").render_with_generation(values);
    result.set("text", rendered.text);
    Json::Array spans;
    for (const auto& [begin, end] : rendered.generation)
      spans.push_back(Json::Array{static_cast<int64_t>(begin), static_cast<int64_t>(end)});
    if (!spans.empty()) result.set("generation", spans);
    if (rendered.text.size() > kLongestText) {
      result.set("text", to_utf8(to_utf32(rendered.text).substr(0, 100)));
      result.set("bytes", static_cast<int64_t>(rendered.text.size()));
      result.set("hash", hash_of(rendered.text));
    }
  } catch (const Error& error) {
    const std::string message = error.what();
    if (!message.starts_with("[t:")) throw;
    result.set("error_line", static_cast<int64_t>(std::stoll(message.substr(3))));
  }
  return result;
}

std::string error_of(const std::string& source, const Json& values) {
  try {
    Template::parse(source, "t").render(values);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(TemplateCases, AreWhatJinjaMakesOfThem) {
  const Json dialogues = Json::parse_file(kFolder + "dialogues.json");
  size_t templates = 0, compared = 0;
  for (const Json& line : read_lines(kFolder + "cases.jsonl")) {
    const Json* own = line.find("template");
    const std::string name = line.at("name").as_string();
    const std::string source = own ? own->as_string() : read_file(kFolder + "sources/" + name + ".jinja");
    const Json::Array& results = line.at("results").as_array();
    EXPECT_EQ(results.size(), own ? 1 : dialogues.as_array().size()) << name;
    templates += !own;
    for (size_t i = 0; i < results.size(); ++i) {
      const size_t dialogue = own ? kForExpressions : i;
      const Json& values = dialogues.as_array().at(dialogue);
      EXPECT_EQ(render(source, values).dump(), results[i].dump())
          << name << " with dialogue " << dialogue << ", error: " << error_of(source, values) << "\n"
          << source;
      ++compared;
    }
  }
  EXPECT_GE(dialogues.as_array().size(), 20u);
  EXPECT_GE(templates, 60u);
  EXPECT_GT(compared, 1500u);
}

}  // namespace
}  // namespace temper::templates
