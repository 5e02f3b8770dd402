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

std::string limited(std::string_view source, const Limits& limits) {
  try {
    return "no error: " + Template::parse(source, "chat").render_with_generation(Json::Object(), limits).text;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Template, KnowsTheNamesThatStandInIt) {
  const Template parsed =
      Template::parse("text {# comment #}{{ m.role ~ m['name'] }}{% if m.get('calls') %}{% endif %}", "chat");
  for (const char* name : {"m", "role", "name", "calls"}) EXPECT_TRUE(parsed.mentions(name)) << name;
  for (const char* name : {"text", "comment", "rol", ""}) EXPECT_FALSE(parsed.mentions(name)) << name;
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
  EXPECT_EQ(message("{% if 1 %}\n{{ '1' | from_json }}{% endif %}"), "[chat:2] no filter named 'from_json'");
  EXPECT_EQ(message("{{ 99999999999999999999 }}"),
            "[chat:1] '99999999999999999999' is not an integer of 64 bits");
  EXPECT_EQ(message("{{ 9223372036854775807 + 1 }}"), "[chat:1] an integer does not fit into 64 bits");
  EXPECT_EQ(message("{{ 'a'|trim(1, 2) }}"), "[chat:1] filter 'trim' takes at most 1 argument(s), found 2");
  EXPECT_EQ(message("{{ [1]|map('upper') }}"), "[chat:1] a generator cannot be printed; add |list");
  EXPECT_EQ(message("{% for x in [1] %}{{ loop([2]) }}{% endfor %}"),
            "[chat:1] the loop must be marked 'recursive' to be called");
  EXPECT_EQ(message("{% filter length %}abc{% endfilter %}"),
            "[chat:1] a filter block must give a str, found int");
  EXPECT_EQ(message("{% set n = namespace() %}{% set n.n = n %}{{ n }}"),
            "[chat:1] a namespace that holds itself cannot be printed");
}

// Templates parse JSON, or ask what only other programs know, in branches that few dialogues take.
TEST(TemplateErrors, UnknownFiltersAndTestsFailWhereTheyAreReachedOnly) {
  EXPECT_EQ(message("{% if a is string %}{{ a | from_json }}{% else %}b{% endif %}"), "no error: b");
  EXPECT_EQ(message("{{ 'c' if a is undefined or a is nope else a | nope(1) }}"), "no error: c");
  EXPECT_EQ(message("{% macro f() %}{{ 1 is nope }}{% endmacro %}d"), "no error: d");
  EXPECT_EQ(message("{% for x in [] %}{% filter nope %}{{ x }}{% endfilter %}{% endfor %}e"), "no error: e");
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
  const std::string loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(limited(loops, {.steps = 1000}), "[chat:1] the template takes more than 1000 steps");
  EXPECT_EQ(limited(loops, {.steps = INT64_MAX, .seconds = 0.05}),
            "[chat:1] the template takes more than 0.05 seconds of a processor");
  EXPECT_EQ(limited("{{ 'abc' * 100 }}", {.text = 200}), "[chat:1] a text would be larger than 200 bytes");
  EXPECT_EQ(limited("{% for i in range(30) %}{{ 'abcdefgh' }}{% endfor %}", {.text = 200}),
            "[chat:1] a text would be larger than 200 bytes");
  EXPECT_EQ(limited("{{ [1] * 11 }}", {.items = 10}), "[chat:1] a list would have more than 10 items");
  EXPECT_EQ(limited("{% for i in range(99) %}{% set x = 'ab' * 50 %}{% endfor %}", {.bytes = 5000}),
            "[chat:1] the template makes more than 5000 bytes of texts and lists");
  EXPECT_EQ(message("a\n\xff"),
            "[chat:2] the template is not a text in UTF-8; write the file as UTF-8, or download it again");
  EXPECT_NE(message(std::string_view("a\0b", 3)).find("[chat:1] the template is not a text in UTF-8"),
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

// Recursion through bodies that are nested themselves; without a limit the stack would overflow.
TEST(TemplateLimits, DepthCountsStatements) {
  const auto nested = [](const std::string& begin, const std::string& inside, const std::string& end) {
    std::string source = inside;
    for (int i = 0; i < 100; ++i) source = begin + source + end;
    return source;
  };
  for (const auto& [begin, end] :
       std::vector<std::pair<std::string, std::string>>{{"{% if true %}", "{% endif %}"},
                                                        {"{% for x in [1] %}", "{% endfor %}"},
                                                        {"{% with a = 1 %}", "{% endwith %}"},
                                                        {"{% set x %}", "{% endset %}"},
                                                        {"{% filter trim %}", "{% endfilter %}"}}) {
    const std::string body = nested(begin, "{{ f() }}", end);
    EXPECT_NE(message("{% macro f() %}" + body + "{% endmacro %}{{ f() }}").find("levels deep"),
              std::string::npos)
        << begin;
  }
  const std::string again = "{% for y in [1] recursive %}" +
                            nested("{% if true %}", "{{ loop([1]) }}", "{% endif %}") + "{% endfor %}";
  EXPECT_NE(message(again).find("levels deep"), std::string::npos);
}

// Each would take gigabytes or hours where it is not stopped before.
TEST(TemplateLimits, NothingIsMadeBeforeItsSizeIsKnown) {
  for (const std::string_view source :
       {"{{ 'x' * 10 ** 9 }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ range(10 ** 9) | list }}",
        "{{ 'x'.center(10 ** 12) }}",
        "{{ 'x'.zfill(10 ** 12) }}",
        "{{ 'x'.ljust(10 ** 12) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:>{w}}'.format(1, w=10 ** 9) }}",
        "{{ 'x' | center(10 ** 9) }}",
        "{{ ('x' * 10 ** 6) | replace('x', 'y' * 10 ** 6) }}",
        "{{ ('x' * 10 ** 6).replace('', 'y' * 10 ** 3) }}",
        "{{ ('x' * 10 ** 6).join(['a'] * 10 ** 6) }}",
        "{{ ['a' * 10 ** 6] * 10 ** 5 | join }}",
        "{{ ['a' * 10 ** 6] * 10 ** 3 | join }}",
        "{{ [1] | batch(10 ** 12, 0) | list }}",
        "{{ [1] | slice(10 ** 12, 0) | list }}",
        "{{ ('\n' * 10 ** 6) | indent('x' * 10 ** 6, blank=true) }}",
        "{{ 2 ** 10 ** 9 }}",
        "{{ [[1] * 10 ** 6] * 10 ** 3 | sum(start=[]) }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
        "ns.l }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
        "ns.l|tojson }}",
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}"}) {
    const std::string found = message(source);
    EXPECT_FALSE(found.starts_with("no error")) << source << ": " << found.substr(0, 100);
  }
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
