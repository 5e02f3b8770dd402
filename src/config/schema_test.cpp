#include "config/schema.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "config/config_fixture.h"
#include "config/load.h"
#include "config/print.h"
#include "config/scalars.h"
#include "tests/support/errors.h"

namespace temper::config {
namespace {

struct Nothing {};
void describe(Schema&, Nothing&) {}

struct Person {
  std::optional<std::string> name;
  std::string city;
};
void describe(Schema& s, Person& c) {
  s.field("name", c.name, "a name");
  s.field("city", c.city, "a city");
}

// What the configuration of the other tests does not have.
struct Odd {
  fixture::Mode mode = fixture::Mode::kSft;
  std::string color = "red";
  double factor = 1;
  std::vector<int64_t> powers;
  std::optional<std::vector<int64_t>> shape;
  Nothing nothing;
  fixture::Optimizer first, second, third, fourth;
  std::vector<Person> people;
};
void describe(Schema& s, Odd& c) {
  s.choice("mode", c.mode, {{"sft", fixture::Mode::kSft}, {"grpo", fixture::Mode::kGrpo}}, "a mode")
      .answer("ppo", "write grpo");
  s.field("color", c.color, "a color").one_of({"red", "green"});
  s.field("factor", c.factor, "a factor").one_of({1, 2.5});
  s.field("powers", c.powers, "powers").one_of({1, 2, 4});
  s.field("shape", c.shape, "a shape").at_least(1);
  s.group("nothing", c.nothing, "no keys yet");
  s.group("first", c.first, "one");
  s.group("second", c.second, "two");
  s.group("third", c.third, "three");
  s.group("fourth", c.fourth, "four");
  s.list("people", c.people, "who");
  s.answer("learning_rate", "first.lr");
}

TEST(Limits, AreOfNumbersAndOfValues) {
  const Limits open{.minimum = 0, .maximum = 1, .open_minimum = true};
  EXPECT_EQ(open.bounds(), "above 0 and at most 1");
  EXPECT_FALSE(open.take(Json(0)));
  EXPECT_TRUE(open.take(Json(0.5)));
  EXPECT_TRUE(open.take(Json(1)));
  EXPECT_FALSE(open.take(Json(1.5)));
  EXPECT_TRUE(open.take(Json("text"))) << "bounds are of numbers";
  const Limits few{.allowed = {Json(1), Json("red")}};
  EXPECT_EQ(few.bounds(), "");
  EXPECT_TRUE(few.take(Json(1.0)));
  EXPECT_TRUE(few.take(Json("red")));
  EXPECT_FALSE(few.take(Json("green")));
  EXPECT_TRUE(Limits().take(Json(7)));
}

struct Loaded {
  Odd odd;
  std::string error;
};

Loaded load_odd(std::string_view yaml, const std::vector<std::string>& flags = {}) {
  Loaded out;
  Schema schema = schema_of(out.odd);
  out.error = error_of([&] { load_text(schema, yaml, "f.yaml", flags); });
  return out;
}

TEST(Values, OfAFixedSetAreComparedAsWhatTheyAre) {
  const Odd odd = load_odd("color: green\nfactor: 1\npowers: [4, 1]\nshape: [2, 3]").odd;
  EXPECT_EQ(odd.color, "green");
  EXPECT_EQ(odd.factor, 1);
  EXPECT_EQ(odd.powers, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(odd.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(load_odd("factor: 2.5").odd.factor, 2.5);
  EXPECT_EQ(load_odd("shape: null").odd.shape, std::nullopt);
}

TEST(Values, RefusalsSayWhatIsExpectedAndWhatIsMeant) {
  for (const auto& [yaml, expected] : std::vector<std::pair<std::string, std::string>>{
           {"mode: ppo", "'mode': expected one of sft, grpo, found 'ppo'; write grpo"},
           {"mode: zzzzzz", "'mode': expected one of sft, grpo, found 'zzzzzz'"},
           {"mode: [ppo]", "'mode': expected one of sft, grpo, found a list of 1"},
           {"color: blue", "'color': expected one of red, green, found 'blue'"},
           {"factor: 2", "'factor': expected one of 1, 2.5, found '2'"},
           {"powers: [1, 3]", "'powers[1]': expected one of 1, 2, 4, found '3'"},
           {"powers: [a]", "'powers[0]': expected one of 1, 2, 4, found 'a'"},
           {"powers: 1", "'powers': expected a list of values out of 1, 2, 4, found '1'"},
           {"shape: [0]", "'shape[0]': expected an integer at least 1, found '0'"},
           {"shape: 1", "'shape': expected a list of integers at least 1 or null, found '1'"},
           {"first: {lr: 0}", "'first.lr': expected a number above 0, found '0'"},
           {"first: {warmup: 1001}",
            "'first.warmup': expected an integer at least 0 and at most 1000, found '1001'"},
           {"first: {warmup: -3000000000}",
            "'first.warmup': expected an integer at least 0 and at most 1000, found '-3000000000'"},
           {"first: {warmup: 007}",
            "'first.warmup': expected an integer at least 0 and at most 1000, found '007'; numbers have no "
            "leading zeros"},
           {"first: {warmup: 0x1}",
            "'first.warmup': expected an integer at least 0 and at most 1000, found '0x1'"},
           {"people: art", "'people': expected a list of mappings, found 'art'"},
           {"people: [art]",
            "'people[0]': expected a mapping of keys, found 'art'; its keys are name, city"}})
    EXPECT_EQ(load_odd(yaml).error, "[f.yaml:1] " + expected);
  fixture::Train train;
  Schema schema = schema_of(train);
  const auto compile = [&](const char* value) {
    return error_of([&] { load_text(schema, fmt::format("compile: {}", value), "f.yaml"); });
  };
  EXPECT_EQ(compile("maybe"), "[f.yaml:1] 'compile': expected true or false, found 'maybe'");
  EXPECT_EQ(
      compile("'true'"),
      "[f.yaml:1] 'compile': expected true or false, found the quoted text \"true\"; remove the quotes");
}

TEST(Suggestions, KnowWhereElseAKeyIs) {
  for (const auto& [yaml, expected] : std::vector<std::pair<std::string, std::string>>{
           // The answer's key is in the same group as this one, or in another one.
           {"second: {learning_rate: 1}", "'second.learning_rate'; Temper calls it 'second.lr'"},
           {"nothing: {learning_rate: 1}", "'nothing.learning_rate'; Temper calls it 'first.lr'"},
           {"learning_rate: 1", "'learning_rate'; Temper calls it 'first.lr'"},
           {"frist: {lr: 1}", "'frist'; did you mean 'first'?"},
           {"a.b: 1",
            "'a.b'; the keys at the top are mode, color, factor, powers, shape, nothing, first, "
            "second, third, fourth, people"}})
    EXPECT_EQ(load_odd(yaml).error, "[f.yaml:1] unknown key " + expected);
  for (const auto& [flag, expected] : std::vector<std::pair<std::string, std::string>>{
           {"--frist.lr", "'frist.lr'; did you mean 'first.lr'?"},
           {"--zzzzzzzzzzzz.qqqqqqqqqqq",
            "'zzzzzzzzzzzz.qqqqqqqqqqq'; the keys at the top are mode, color, factor, powers, shape, "
            "nothing, first, second, third, fourth, people"},
           {"--elsewhere.name", "'elsewhere.name'; did you mean 'people[].name'?"},
           {"--persons[0].city", "'persons[0].city'; did you mean 'people[].city'?"},
           {"--people[0.city", "'people[0.city'; did you mean 'people[].city'?"}})
    EXPECT_EQ(load_odd("", {flag, "1"}).error, "[command line] unknown key " + expected);
  fixture::RunConfig run;
  Schema pair;
  pair.group("left", run.train, "one");
  fixture::Train other;
  pair.group("right", other, "another");
  EXPECT_EQ(error_of([&] { load_text(pair, "zzzzzzzzzzzzzzzz: {steps: 1}", "f.yaml"); }),
            "[f.yaml:1] unknown key 'zzzzzzzzzzzzzzzz'; the keys at the top are left, right");
  EXPECT_EQ(error_of([&] {
              load_text(pair, "", "f.yaml", {"--steps", "1"});
            }),
            "[command line] unknown key 'steps'; did you mean 'left.steps' or 'right.steps'?");
}

TEST(Flags, OfElementsNameThem) {
  const std::string people = "people: [{city: Ulm}, {name: Ada}]";
  EXPECT_EQ(load_odd(people, {"--people[Ada].city", "Bonn"}).odd.people[1].city, "Bonn");
  for (const auto& [flag, expected] : std::vector<std::pair<std::string, std::string>>{
           {"--people[Bob].city",
            "'people[Bob]': 'people' has no such element; its elements are 0 to 1, or by name Ada"},
           {"--people[0]",
            "'people[0]' is an element of a list; set its keys one by one: --people[0].name ..."},
           {"--people[Ada].",
            "'people[Ada]' is an element of a list; set its keys one by one: --people[Ada].name ..."},
           {"--people[1]city",
            "'people[1]' is an element of a list; set its keys one by one: --people[1].name ..."},
           {"--", "expected a flag such as --key VALUE, found '--'"},
           {"--nothing", "'nothing' is a group of keys; set them one by one: --nothing.key ..."}})
    EXPECT_EQ(load_odd(people, {flag, "x"}).error, "[command line] " + expected);
}

TEST(Schema, KnowsWhatIsWrittenOfAListThatItselfIsNot) {
  fixture::RunConfig run;
  run.sources = {{"a", 1, {}}, {"b", 1, {}}};
  Schema schema = schema_of(run);
  load_text(schema, "", "f.yaml", {"--sources[1].weight", "2"});
  EXPECT_TRUE(schema.was_written("sources"));
  EXPECT_TRUE(schema.was_written("sources[1]"));
  EXPECT_FALSE(schema.was_written("sources[0]"));
  // No keys: an element without its number, and an element of what is no list.
  for (const char* path : {"sources.path", "train[0].steps", "name.first"})
    EXPECT_NE(error_of([&] { schema.was_written(path); }, ErrorKind::kDefect)
                  .find(fmt::format("no key '{}' is declared", path)),
              std::string::npos);
}

TEST(Schema, ItsValuesAreJson) {
  Odd odd;
  odd.people = {{"Ada", "Ulm"}};
  const Json values = value_of(schema_of(odd));
  EXPECT_EQ(values.at("first").dump(), R"({"lr": 1e-05, "betas": [0.9, 0.95], "clip": null, "warmup": 10})");
  EXPECT_EQ(values.at("people").dump(), R"([{"name": "Ada", "city": "Ulm"}])");
  EXPECT_EQ(values.at("nothing"), Json(Json::Object{}));
}

TEST(Schema, WrongDeclarationsAreDefects) {
  int number = 0;
  fixture::Optimizer group;
  Schema schema;
  for (const auto& [declare, expected] : std::vector<std::pair<std::function<void()>, std::string>>{
           {[&] { schema.field("a", number, "").path(); }, "only text can be a path"},
           {[&] { schema.group("b", group, "").path(); }, "only text can be a path"},
           {[&] { schema.field("c", number, "").shorthand("d"); }, "no key 'd' for a shorthand"},
           {[&] { schema.field("", number, ""); }, "key '' must consist of a-z, 0-9 and _"},
           {[&] { schema.answer("e", "leave it out"), schema.answer("e", "b"); },
            "the unknown key 'e' has two answers"}})
    EXPECT_NE(error_of(declare, ErrorKind::kDefect).find(expected), std::string::npos) << expected;
}

TEST(Print, KeepsWhatIsRare) {
  Odd odd;
  const std::string text = dump(schema_of(odd));
  EXPECT_NE(text.find("nothing: {}\nfirst:\n"), std::string::npos) << text;
  EXPECT_EQ(load_odd(text).error, "");
  // A space that does not break is no control character, and what is no UTF-8 stays as it is.
  EXPECT_EQ(print_value("\xC2\xA0"), "\"\xC2\xA0\"");
  EXPECT_EQ(print_value("\xC2\x85"), "\"\\x85\"");
  EXPECT_EQ(print_value("\xC2"), "\"\xC2\"");
  EXPECT_NE(error_of([] { print_value(std::numeric_limits<double>::infinity()); }, ErrorKind::kDefect)
                .find("not finite"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::config
