// The one file that includes yaml-cpp: its event interface, because its document drops duplicate keys' places
// and follows cyclic aliases forever.
#include "config/yaml.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/null.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"

namespace temper::config {
namespace {

// Aliases copy; without a bound, nested ones grow exponentially.
constexpr size_t kMaxAliasedNodes = 10000;

size_t count_nodes(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const auto& [key, value] : node.members) count += count_nodes(value);
  return count;
}

class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view where) : where_(where) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail("[{}] a second document begins here; only one is read", place(mark));
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) fail("[{}] a key is missing before ':'", place(mark));
    put({.where = place(mark)}, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    check_tag(mark, tag);
    const bool quoted = tag == "!";  // yaml-cpp's mark for anything but a plain scalar
    if (expects_key()) return set_key(mark, text, quoted);
    put({.kind = Node::Kind::kText, .text = text, .quoted = quoted, .where = place(mark)}, anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(Node::Kind::kList, mark, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(Node::Kind::kMap, mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) fail("[{}] a key must be text, found an alias", place(mark));
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail("[{}] an alias stands inside the value it refers to", place(mark));
    aliased_nodes_ += count_nodes(found->second);
    if (aliased_nodes_ > kMaxAliasedNodes)
      fail("[{}] aliases expand to more than {} values", place(mark), kMaxAliasedNodes);
    aliased_.insert(anchor);
    put(found->second, YAML::NullAnchor);
  }

  // The document, whose topmost values know whether aliases refer to them.
  Node take() {
    for (auto& [key, value] : root_.members) value.is_aliased = aliased_.contains(top_anchors_[key]);
    return std::move(root_);
  }

  std::string place(const YAML::Mark& mark) const {
    if (where_ == kCommandLine || mark.is_null()) return where_;
    return fmt::format("{}:{}", where_, mark.line + 1);
  }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor;
    std::optional<std::string> key;  // read, and waiting for its value
    std::string key_where;
    bool key_merges = false;                              // the key is '<<'
    std::optional<Node> merged = {};                      // its value: a mapping or a list of them
    std::unordered_map<std::string, size_t> places = {};  // of the node's members, by their keys
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == Node::Kind::kMap && !open_.back().key;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail("[{}] tags ('{}') are not supported", place(mark), tag);
  }

  void set_key(const YAML::Mark& mark, const std::string& key, bool quoted) {
    Frame& frame = open_.back();
    frame.key_merges = key == "<<" && !quoted;
    if (frame.key_merges && frame.merged)
      fail("[{}] key '<<' is written twice, first at {}; write one list of aliases", place(mark),
           frame.merged->key_where);
    if (const auto known = frame.places.find(key); known != frame.places.end())
      fail("[{}] key '{}' is written twice, first at {}", place(mark), key,
           frame.node.members[known->second].second.key_where);
    frame.key = key;
    frame.key_where = place(mark);
  }

  void open(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({{.kind = kind, .where = place(mark)}, anchor, {}, {}});
  }

  // The keys of `from` that the mapping does not have itself.
  static void merge(const Node& from, Frame& into) {
    if (from.kind != Node::Kind::kMap)
      fail("[{}] '<<' takes an alias of a mapping, or a list of them; found {}", from.where,
           describe_node(from));
    for (const auto& member : from.members)
      if (into.places.emplace(member.first, into.node.members.size()).second)
        into.node.members.push_back(member);
  }

  void close() {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    if (frame.merged) {
      const bool several = frame.merged->kind == Node::Kind::kList;
      for (const Node& from : several ? frame.merged->items : Node::Items{*frame.merged}) merge(from, frame);
    }
    put(std::move(frame.node), frame.anchor);
  }

  void put(Node node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    // Not earlier: for an unclosed list yaml-cpp announces a key before it throws.
    if (expects_key()) fail("[{}] a key must be text, found {}", node.where, describe_node(node));
    Frame& frame = open_.back();
    if (open_.size() == 1 && frame.key) top_anchors_[*frame.key] = anchor;
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(node));
      return;
    }
    node.key_where = frame.key_where;
    if (node.kind == Node::Kind::kNull) node.where = frame.key_where;  // else where the next key stands
    if (frame.key_merges) {
      frame.merged = std::move(node);
      frame.key.reset();
      return;
    }
    frame.places.emplace(*frame.key, frame.node.members.size());
    frame.node.members.emplace_back(*std::exchange(frame.key, std::nullopt), std::move(node));
  }

  std::string where_;
  Node root_;
  int documents_ = 0;
  size_t aliased_nodes_ = 0;
  std::vector<Frame> open_;
  std::map<YAML::anchor_t, Node> anchors_;             // finished values only
  std::map<std::string, YAML::anchor_t> top_anchors_;  // of the topmost values, by their keys
  std::set<YAML::anchor_t> aliased_;                   // that aliases refer to
};

}  // namespace

std::string describe_node(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kText:
      return node.quoted ? fmt::format("the quoted text \"{}\"", node.text) : fmt::format("'{}'", node.text);
    case Node::Kind::kList:
      return fmt::format("a list of {}", node.items.size());
    case Node::Kind::kMap:
      break;
  }
  return "a mapping";
}

namespace {

void check_characters(std::string_view text, std::string_view where) {
  const auto line_of = [&](size_t at) {
    return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  };
  const size_t valid = valid_utf8_prefix(text), nul = text.find('\0');
  if (valid < text.size()) fail("[{}:{}] the text is not valid UTF-8", where, line_of(valid));
  if (nul != std::string_view::npos)
    fail("[{}:{}] the text has a NUL character; remove it", where, line_of(nul));
}

// Which of two lines, from `first` on, has a tab before its text. Further up tabs are allowed: in block
// scalars and lists.
std::optional<int> tab_that_indents(std::string_view text, int first) {
  for (int line = 1; line <= first + 1 && !text.empty(); ++line) {
    const size_t indent = std::min(text.find_first_not_of(" \t"), text.size());
    if (line >= first && text.substr(0, indent).find('\t') != std::string_view::npos) return line;
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return std::nullopt;
}

}  // namespace

Node parse_yaml(std::string_view text, std::string_view where) {
  check_characters(text, where);
  Builder builder(where);
  try {
    // The end marker makes yaml-cpp see a quote that is still open; at a bare end of file it closes it.
    std::istringstream stream(fmt::format("{}{}...\n", text, text.ends_with('\n') ? "" : "\n"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) continue;
  } catch (const YAML::DeepRecursion& error) {
    fail("[{}] lists and mappings are nested too deeply", builder.place(error.mark));
  } catch (const YAML::Exception& error) {
    const bool open_quote = error.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
    const auto tab = tab_that_indents(text, error.mark.line + 1);
    fail("[{}] not valid YAML: {}{}", builder.place(error.mark),
         open_quote ? "a quote is not closed" : error.msg,
         tab ? fmt::format("; a tab indents line {}: indent with spaces", *tab) : "");
  }
  return builder.take();
}

Node parse_flag_value(std::string_view text) {
  static constexpr std::string_view kPairs[] = {"[]", "{}", "\"\"", "''"};
  for (const std::string_view pair : kPairs)
    if (text.size() > 1 && text.front() == pair[0] && text.back() == pair[1])
      return parse_yaml(text, kCommandLine);
  if (valid_utf8_prefix(text) < text.size()) fail("[{}] '{}' is not valid UTF-8", kCommandLine, text);
  Node node{.where = std::string(kCommandLine)};
  if (YAML::IsNullString(std::string(text)) && !text.empty()) return node;
  node.kind = Node::Kind::kText;
  node.text = text;
  return node;
}

}  // namespace temper::config
