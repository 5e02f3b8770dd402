#include "config/yaml.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "tests/support/errors.h"

namespace temper::config {
namespace {

std::string yaml_error(std::string_view text) {
  const std::string message = error_of([&] { parse_yaml(text, "f.yaml"); });
  return message.empty() ? "no error" : message;
}

TEST(Yaml, KeepsOrderLinesAndQuotes) {
  const Node root = parse_yaml("b: 1\na:\n  - '2'\n  - {c: }\n", "f.yaml");
  ASSERT_EQ(root.members.size(), 2u);
  EXPECT_EQ(root.members[0].first, "b");
  EXPECT_FALSE(root.members[0].second.quoted);
  const Node& list = root.members[1].second;
  EXPECT_EQ(list.key_where, "f.yaml:2");
  EXPECT_TRUE(list.items[0].quoted);
  EXPECT_EQ(list.items[1].where, "f.yaml:4");
  EXPECT_EQ(list.items[1].members[0].second.kind, Node::Kind::kNull);
}

// Comparing each with all others would take half a minute.
TEST(Yaml, HundredThousandsOfKeysTakeSeconds) {
  std::string text = "base: &base\n", merged = "all:\n  <<: *base\n";
  for (int i = 0; i < 4000; ++i) text += fmt::format("  b{}: 1\n", i);
  for (int i = 0; i < 200'000; ++i) merged += fmt::format("  key_{}: 1\n", i);
  const double start = seconds_now();
  const Node root = parse_yaml(text + merged, "f.yaml");
  EXPECT_EQ(root.members[1].second.members.size(), 204'000u);
  EXPECT_EQ(yaml_error(text + merged + "  key_7: 2\n"),
            "[f.yaml:204004] key 'key_7' is written twice, first at f.yaml:4011");
  EXPECT_LT(seconds_now() - start, 15);
}

TEST(Yaml, RefusesWhatWouldBeAmbiguous) {
  EXPECT_EQ(yaml_error("a: 1\nb: 2\na: 3\n"), "[f.yaml:3] key 'a' is written twice, first at f.yaml:1");
  EXPECT_EQ(yaml_error("x:\n- {k: 1, 'k': 2}"), "[f.yaml:2] key 'k' is written twice, first at f.yaml:2");
  EXPECT_EQ(yaml_error("a: &a {b: 1}\nc:\n  <<: *a\n  <<: *a\n"),
            "[f.yaml:4] key '<<' is written twice, first at f.yaml:3; write one list of aliases");
  EXPECT_EQ(yaml_error("c:\n  <<: 5\n"),
            "[f.yaml:2] '<<' takes an alias of a mapping, or a list of them; found '5'");
  EXPECT_EQ(yaml_error("a: !!int 5"), "[f.yaml:1] tags ('tag:yaml.org,2002:int') are not supported");
  EXPECT_EQ(yaml_error("a: !mine [5]"), "[f.yaml:1] tags ('!mine') are not supported");
  EXPECT_EQ(yaml_error("a: 1\n---\nb: 1\n"), "[f.yaml:2] a second document begins here; only one is read");
  EXPECT_EQ(yaml_error("[a]: 1"), "[f.yaml:1] a key must be text, found a list of 1");
  EXPECT_EQ(yaml_error("? {a: b}\n: 1"), "[f.yaml:1] a key must be text, found a mapping");
  EXPECT_EQ(yaml_error("~: 1"), "[f.yaml:1] a key is missing before ':'");
  EXPECT_EQ(yaml_error("a: &x b\n*x : 1\n"), "[f.yaml:2] a key must be text, found an alias");
  EXPECT_EQ(yaml_error("a: 1\nb: \xFF"), "[f.yaml:2] the text is not valid UTF-8");
  EXPECT_EQ(yaml_error(std::string_view("a: 1\nb: \0c\n", 11)),
            "[f.yaml:2] the text has a NUL character; remove it");
}

TEST(Yaml, CopiesAliasesButNotCycles) {
  const Node root = parse_yaml("a: &x [1, 2]\nb: *x\n", "f.yaml");
  EXPECT_EQ(root.members[1].second.items.size(), 2u);
  EXPECT_EQ(root.members[1].second.key_where, "f.yaml:2");
  EXPECT_EQ(yaml_error("a: &x\n  b: *x\n"), "[f.yaml:2] an alias stands inside the value it refers to");
  EXPECT_EQ(yaml_error("a: &x [*x]\n"), "[f.yaml:1] an alias stands inside the value it refers to");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 10; ++k) bomb += fmt::format("*a{},", i - 1);
    bomb += "]\n";
  }
  EXPECT_NE(yaml_error(bomb).find("aliases expand to more than"), std::string::npos);
}

TEST(Yaml, MergesMappings) {
  const Node root =
      parse_yaml("a: &a {k: 1, l: 2}\nb: &b {l: 3, m: 4}\nc:\n  m: 5\n  <<: [*b, *a]\n'<<': 1\n", "f.yaml");
  const Node::Members& merged = root.members[2].second.members;
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].first + merged[0].second.text, "m5");  // its own
  EXPECT_EQ(merged[1].first + merged[1].second.text, "l3");  // of the first
  EXPECT_EQ(merged[2].first + merged[2].second.text, "k1");
  EXPECT_EQ(root.members[3].first, "<<");  // quoted, it is a key
  EXPECT_TRUE(root.members[0].second.is_aliased);
  EXPECT_FALSE(root.members[2].second.is_aliased);
}

TEST(Yaml, TabsThatIndentAreNamed) {
  const auto tab = [](int line) { return fmt::format("; a tab indents line {}: indent with spaces", line); };
  for (const char* text : {"a:\n\tb: 2\n", "a:\n\t- 2\n", "a:\n\tb: 2\n\tc: 3\n", "a: 1\n\tb: 2\n"}) {
    const std::string error = yaml_error(text);
    EXPECT_TRUE(error.starts_with("[f.yaml:2] not valid YAML: ") && error.ends_with(tab(2))) << text << error;
  }
  EXPECT_TRUE(yaml_error("a:\n  b: 1\n \tc: 2\n").ends_with(tab(3)));
  EXPECT_EQ(yaml_error("a: 1\t# remark\n"), "no error");
}

// In the text of a block scalar, or in a list, a tab is no error, and hides none that comes later.
TEST(Yaml, TabsThatAreAllowedAreNotBlamed) {
  const std::string block = "a: |\n  def f():\n  \treturn 1\n";
  EXPECT_EQ(yaml_error(block), "no error");
  EXPECT_EQ(yaml_error("a: [1,\n\t2]\n"), "no error");
  for (const std::string& text :
       {block + "b: [1, 2\nc: 3\n", block + "b: 1\nc: d: e\n", block + "b: 1\nc: d: e\nf: 1\ng: 2\nh: 3\n"}) {
    const std::string error = yaml_error(text);
    EXPECT_TRUE(error.starts_with("[f.yaml:5] not valid YAML: ")) << error;
    EXPECT_EQ(error.find("tab"), std::string::npos) << error;
  }
}

TEST(Yaml, SyntaxErrorsNameTheLine) {
  for (const char* text : {"a: 1\nb: [1, 2\n", "a: 1\nb: \"x\n", "a: 1\n\tb: 2\n", "a: 1\nb: *nothing\n",
                           "a: 1\nb: c: d\n", "a: 1\nb: 'x"}) {
    const std::string error = yaml_error(text);
    EXPECT_TRUE(error.starts_with("[f.yaml:2] not valid YAML: ") ||
                error.starts_with("[f.yaml:3] not valid YAML: "))
        << text << " -> " << error;
  }
  EXPECT_NE(yaml_error(std::string(100000, '[')).find("nested too deeply"), std::string::npos);
  EXPECT_EQ(yaml_error("a: \"x\nb: 1\n"), "[f.yaml:3] not valid YAML: a quote is not closed");
  EXPECT_NE(yaml_error("a: 1\n]").find("not valid YAML"), std::string::npos);
}

TEST(Yaml, FlagValuesAreTakenAsTheyStand) {
  EXPECT_EQ(parse_flag_value("a: b # c").text, "a: b # c");
  EXPECT_EQ(parse_flag_value("*x").text, "*x");
  EXPECT_EQ(parse_flag_value("").kind, Node::Kind::kText);
  EXPECT_EQ(parse_flag_value("null").kind, Node::Kind::kNull);
  EXPECT_EQ(parse_flag_value("'null'").text, "null");
  EXPECT_EQ(parse_flag_value("[a, {b: c}]").items.size(), 2u);
  EXPECT_THROW(parse_flag_value("\xFF"), Error);
}

}  // namespace
}  // namespace temper::config
