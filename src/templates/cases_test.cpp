// What Jinja2 makes of the templates in tests/templates (tools/make_template_cases.py), byte for byte.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "templates/template.h"

namespace temper::templates {
namespace {

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
  } catch (const Error& error) {
    const std::string message = error.what();
    if (!message.starts_with("[t:")) throw;
    result.set("error_line", static_cast<int64_t>(std::stoll(message.substr(3))));
  }
  return result;
}

TEST(TemplateCases, AreWhatJinjaMakesOfThem) {
  const std::vector<Json> lines = read_lines(kFolder + "cases.jsonl");
  const Json::Array& dialogues = lines.at(0).at("dialogues").as_array();
  size_t compared = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const Json* own = lines[i].find("template");
    const std::string name = lines[i].find("name")->as_string();
    const std::string source = own ? own->as_string() : read_file(kFolder + "sources/" + name + ".jinja");
    for (Json expected : lines[i].at("results").as_array()) {
      const int64_t dialogue = expected.at("dialogue").as_int();
      expected.as_object().erase(expected.as_object().begin());
      const Json found = render(source, dialogues.at(static_cast<size_t>(dialogue)));
      EXPECT_EQ(found.dump(), expected.dump()) << name << " with dialogue " << dialogue << ": " << source;
      ++compared;
    }
  }
  EXPECT_GT(compared, 150u);
}

}  // namespace
}  // namespace temper::templates
