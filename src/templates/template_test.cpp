#include "templates/template.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"

namespace temper::templates {
namespace {

std::string render(std::string_view source, std::string_view values = "{}") {
  return Template::parse(source, "chat").render(Json::parse(values, "test"));
}

std::string message(std::string_view source, std::string_view values = "{}") {
  try {
    return "no error: " + render(source, values);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(TemplateErrors, NameTheLineAndTheReason) {
  EXPECT_EQ(message("a\nb {{ x.y }}"), "[chat:2] 'x' is undefined");
  EXPECT_EQ(message("{{ m.a.b }}", R"({"m":{}})"), "[chat:1] 'dict object' has no attribute 'a'");
  EXPECT_EQ(message("\n{{ raise_exception('roles: ' ~ 1) }}"), "[chat:2] roles: 1");
  EXPECT_EQ(message("{{ 1\n + ''}}"), "[chat:2] unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(message("{% macro f(a) %}\n{{ a() }}\n{% endmacro %}\n\n{{ f(1) }}"),
            "[chat:2] 'int' object is not callable");
  EXPECT_EQ(message("{{ l.append(1) }}", R"({"l":[]})"),
            "[chat:1] access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(message("x\n{% if a %}\ny"), "[chat:3] the tag of line 2 is not closed by 'endif'");
  EXPECT_EQ(message("{% block a %}{% endblock %}"),
            "[chat:1] unknown tag 'block'; supported: for, if, set, macro, call, filter, with, raw, "
            "generation, break, "
            "continue");
  EXPECT_EQ(message("\n{{ a b }}"), "[chat:2] expected '}}', found 'b'");
  EXPECT_EQ(message("{{ x|nope }}"), "[chat:1] no filter named 'nope'");
  EXPECT_EQ(message("{{ x is nope }}"), "[chat:1] no test named 'nope'");
  EXPECT_EQ(message("{{ 99999999999999999999 }}"),
            "[chat:1] '99999999999999999999' is not an integer of 64 bits");
  EXPECT_EQ(message("{{ 9223372036854775807 + 1 }}"), "[chat:1] an integer does not fit into 64 bits");
  EXPECT_EQ(message("{{ 'a'|trim(1, 2) }}"), "[chat:1] filter 'trim' takes at most 1 argument(s), found 2");
  EXPECT_EQ(message("{{ [1]|map('upper') }}"), "[chat:1] a generator cannot be printed; add |list");
}

TEST(TemplateLimits, EndInErrors) {
  EXPECT_NE(message("{{ 'a' * 1000000000 }}").find("larger than"), std::string::npos);
  EXPECT_NE(message("{% for i in range(100001) %}{% endfor %}").find("at most 100000 items"),
            std::string::npos);
  EXPECT_NE(message("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("levels deep"),
            std::string::npos);
  EXPECT_NE(message("{% set ns = namespace(s='0123456789') %}{% for i in range(40) %}{% set ns.s = ns.s ~ "
                    "ns.s %}{% endfor %}")
                .find("larger than"),
            std::string::npos);
  EXPECT_NE(
      message("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}")
          .find("nested more than"),
      std::string::npos);
  EXPECT_NE(
      message("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}").find("steps"),
      std::string::npos);
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_NE(message("{{ " + deep + " }}").find("nested too deeply"), std::string::npos);
  std::string chain = "1";
  for (int i = 0; i < 100000; ++i) chain += "+1";
  EXPECT_NE(message("{{ " + chain + " }}").find("too many operators"), std::string::npos);
  std::string sum = "1";
  for (int i = 0; i < 900; ++i) sum += "+1";
  EXPECT_EQ(render("{{ " + sum + " }}"), "901");
}

TEST(Template, NamespacesMayReferToThemselves) {
  EXPECT_EQ(
      render(
          "{% set n = namespace() %}{% set n.n = n %}{% macro f() %}{{ n.x }}{% endmacro %}{% set n.f = f %}"
          "{% set n.x = 3 %}{{ n.n.f() }}"),
      "3");
}

TEST(Template, LoopsMayBeKept) {
  EXPECT_EQ(render("{% set n = namespace() %}{% for i in [1, 2, 3] if i > 1 %}{% set n.l = loop %}{% set n.c "
                   "= loop.cycle %}"
                   "{% break %}{% endfor %}{{ n.l.index }}{{ n.l.last }}{{ n.c('a', 'b') }}"),
            "1Truea");
}

TEST(Template, ValuesAreOnlyRead) {
  const Template source = Template::parse("{{ m }}{% set m = 2 %}{{ m }}", "chat");
  const Json values = Json::Object{{"m", 1}};
  EXPECT_EQ(source.render(values), "12");
  EXPECT_EQ(source.render(values), "12");
}

TEST(Template, TellsTheTime) {
  const std::string year = render("{{ strftime_now('%Y') }}");
  EXPECT_EQ(year.size(), 4u);
  EXPECT_GE(std::stoi(year), 2024);
}

TEST(Template, GenerationSpansAreBytes) {
  const Rendered rendered =
      Template::parse("\u00e9{% generation %}a\u00e9{% endgeneration %}|{% generation %}{% endgeneration %}",
                      "chat")
          .render_with_generation(Json::Object());
  EXPECT_EQ(rendered.text, "\u00e9a\u00e9|");
  EXPECT_EQ(rendered.generation, (std::vector<std::pair<size_t, size_t>>{{2, 5}, {6, 6}}));
}

}  // namespace
}  // namespace temper::templates
