// The one file that includes nlohmann's parser: its SAX interface, so that duplicate keys are seen and large
// headers do not pay for a second document.
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace temper {
namespace {

constexpr size_t kMaxDepth = 512;
// Small objects are searched in order; larger ones get an index of their keys.
constexpr size_t kIndexedObject = 16;

class Builder {
 public:
  using Text = nlohmann::json::string_t;

  bool null() { return put(Json()); }
  bool boolean(bool value) { return put(Json(value)); }
  bool number_integer(int64_t value) { return put(Json(value)); }
  bool number_unsigned(uint64_t value) {
    return put(value <= INT64_MAX ? Json(static_cast<int64_t>(value)) : Json(static_cast<double>(value)));
  }
  bool number_float(double value, const Text&) { return put(Json(value)); }
  bool string(Text& value) { return put(Json(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json(Json::Object())); }
  bool start_array(size_t) { return open(Json(Json::Array())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(Text& name) {
    Frame& frame = open_.back();
    Json::Object& object = frame.value.as_object();
    if (object.size() == kIndexedObject)
      for (const auto& member : object) frame.keys.insert(member.first);
    const bool known =
        object.size() < kIndexedObject ? frame.value.find(name) != nullptr : !frame.keys.insert(name).second;
    if (known) {
      problem = fmt::format("key '{}' occurs twice in one object", name);
      return false;
    }
    frame.key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    byte = position;
    problem = error.what();
    const size_t colon = problem.find(": ", problem.find("column"));  // drop nlohmann's own prefix
    if (colon != std::string::npos) problem = problem.substr(colon + 2);
    return false;
  }

  Json root;
  std::string problem;
  size_t byte = 0;

 private:
  struct Frame {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool put(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return true;
    }
    Frame& frame = open_.back();
    if (frame.value.is_array())
      frame.value.as_array().push_back(std::move(value));
    else
      frame.value.as_object().emplace_back(std::move(frame.key), std::move(value));
    return true;
  }

  bool open(Json value) {
    if (open_.size() == kMaxDepth) {
      problem = fmt::format("more than {} levels deep", kMaxDepth);
      return false;
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(value));
  }

  std::vector<Frame> open_;
};

}  // namespace

Json Json::parse(std::string_view text, std::string_view where) {
  Builder builder;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root);
  if (builder.byte == 0) fail("[{}] not valid JSON: {}", where, builder.problem);
  const std::string_view before = text.substr(0, std::min(builder.byte, text.size() + 1) - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  fail("[{}:{}:{}] not valid JSON: {}", where, line, before.size() - start + 1, builder.problem);
}

Json Json::parse_file(const std::string& path) { return parse(read_file(path), path); }

}  // namespace temper
