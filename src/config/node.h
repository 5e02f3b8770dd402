#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::config {

// The "file" of values written as flags.
inline constexpr std::string_view kCommandLine = "command line";

// A parsed configuration value that remembers where it was written.
struct Node {
  enum class Kind { kNull, kText, kList, kMap };
  using Items = std::vector<Node>;
  using Members = std::vector<std::pair<std::string, Node>>;

  Kind kind = Kind::kNull;
  std::string text = {};       // kText: the scalar
  bool quoted = false;         // kText: written in quotes, so never a number, boolean or null
  Items items = {};            // kList
  Members members = {};        // kMap, in the order of the file, keys unique
  std::string where = {};      // "run.yaml:7" or "command line"
  std::string key_where = {};  // of the key that holds this value
  bool is_aliased = false;     // it has an anchor, and an alias elsewhere refers to it
};

// How a value is named in messages: "'abc'", "the quoted text \"5\"", "a list of 3", "a mapping", "null".
std::string describe_node(const Node& node);

}  // namespace temper::config
