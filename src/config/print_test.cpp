#include "config/print.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "config/config_fixture.h"
#include "config/load.h"
#include "config/scalars.h"
#include "config/yaml.h"
#include "tests/support/errors.h"

namespace temper::config {
namespace {

using namespace fixture;

RunConfig reloaded(RunConfig& run) {
  RunConfig copy;
  copy.sources.resize(3);
  Schema schema = schema_of(copy);
  load_text(schema, dump(schema_of(run)), "dump.yaml");
  return copy;
}

TEST(Scalars, NumbersAreDecimal) {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{
           {"2e-5", 2e-5}, {".5", 0.5}, {"5.", 5}, {"+1.5E+3", 1500}, {"-0", 0}, {"0.1", 0.1}})
    EXPECT_EQ(parse_number(text), value) << text;
  for (const char* text : {"", ".", "e5", "1e", "1_000", "0x10", "010", "nan", ".nan", "inf", ".inf", "-.inf",
                           "1e999", "1 ", "--1", "1e+", "1,5", "+-1", "1e-9999999"})
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
}

TEST(Scalars, IntegersAreExact) {
  for (const auto& [text, value] :
       std::vector<std::pair<std::string, int64_t>>{{"0", 0},
                                                    {"1e6", 1000000},
                                                    {"2.5e3", 2500},
                                                    {"10.0", 10},
                                                    {"-7", -7},
                                                    {"1e18", 1000000000000000000},
                                                    {"9223372036854775807", INT64_MAX},
                                                    {"-9223372036854775808", INT64_MIN},
                                                    {"120e-1", 12},
                                                    {"0.0", 0}})
    EXPECT_EQ(parse_integer(text), value) << text;
  for (const char* text :
       {"1.5", "1e-1", "9223372036854775808", "1e19", "1e999999", "0x1", "007", ".inf", "a"})
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
}

TEST(Dump, LoadsBackEqual) {
  RunConfig run;
  EXPECT_EQ(reloaded(run), run);
  run.name = "a: \"b\"\n\t#\\ \x01\x7f é 日本 \xC2\x85 \xE2\x80\xA8 \xEF\xBB\xBF";
  run.note = "null";
  run.buckets = {1, INT64_MAX};
  run.switches = {true, false};
  run.train.optimizer = {1e300, {0.1, 1.0 / 3}, 1e308, 7};
  run.train.mode = Mode::kGrpo;
  run.train.fallback = Mode::kSft;
  run.train.metrics = {};
  run.sources = {{"a b", 0.1, {"", "yes", "1e5", "- x", "~"}}, {"/plain/path-1.jsonl", 1e-7, {}}};
  EXPECT_EQ(reloaded(run), run);
}

TEST(Dump, AnyTextLoadsBackEqual) {
  static const std::string kPieces[] = {
      "a", " ", "\n", "\"", "'", "\\", ":", "#", "-", "\t", "\r", "é", "\xE2\x80\xA9", "{", "[", "]",
      "}", ",", "&",  "*",  "!", "|",  ">", "%", "@", "`",  "1",  "~", "\x1b"};
  const Random random(1, RandomPurpose::kData);
  for (uint64_t i = 0; i < 2000; ++i) {
    RunConfig run;
    for (uint64_t k = 0; k < 1 + i % 6; ++k) run.name += kPieces[random.below(std::size(kPieces), i * 8 + k)];
    run.name.erase(0, 3);
    run.sources = {{run.name, 1, {run.name, "x"}}};
    EXPECT_EQ(reloaded(run), run) << run.name;
  }
}

TEST(Dump, MarksWhatWasWritten) {
  RunConfig run;
  Schema schema = schema_of(run);
  load_text(schema, "train: {optimizer: {lr: 2e-5}}\nsources: [a.jsonl]", "run.yaml");
  const std::string text = dump(schema);
  EXPECT_NE(text.find("    lr: 2e-05  # written\n    betas: [0.9, 0.95]\n    clip: null\n"),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find("sources:  # written\n  - path: a.jsonl  # written\n    weight: 1.0\n    columns: []\n"),
      std::string::npos)
      << text;
}

// Nothing is left of the elements that a file had: no marks, and no keys that the new ones need.
TEST(Dump, AListThatAFlagSetsStartsAnew) {
  const std::string yaml = "sources: [{path: a, weight: 3, columns: [c]}, b]";
  RunConfig run;
  Schema schema = schema_of(run);
  load_text(schema, yaml, "run.yaml", {"--sources", "[{path: d}]"});
  EXPECT_EQ(run.sources, (std::vector<Source>{{"d", 1, {}}}));
  EXPECT_TRUE(schema.was_written("sources[0].path"));
  EXPECT_FALSE(schema.was_written("sources[0].weight"));
  const std::string text = dump(schema);
  EXPECT_NE(text.find("  - path: d  # written\n    weight: 1.0\n    columns: []\n"), std::string::npos)
      << text;
  EXPECT_EQ(error_of([&] {
              load_text(schema, yaml, "run.yaml", {"--sources", "[{weight: 2}]"});
            }),
            "[command line] 'sources[0].path' is missing; expected text. file to read");
}

TEST(Help, ListsEveryKey) {
  RunConfig run;
  const std::string text = help(schema_of(run));
  EXPECT_NE(text.find("  --train.optimizer.lr\n      peak learning rate\n"
                      "      expects a number above 0; default 1e-05\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\ntrain.optimizer: how weights change\n"), std::string::npos);
  EXPECT_NE(text.find("expects one of sft, grpo or null; default null"), std::string::npos);
  EXPECT_NE(text.find("  sources[].path\n      file to read\n      expects text; required\n"),
            std::string::npos);
}

TEST(Help, OfAKey) {
  RunConfig run;
  const Schema schema = schema_of(run);
  const std::string lr = "  --train.optimizer.lr\n      peak learning rate\n";
  EXPECT_TRUE(help_of(schema, "train.optimizer.lr").starts_with(lr));
  EXPECT_TRUE(help_of(schema, "--lr").starts_with(lr));
  EXPECT_TRUE(help_of(schema, "train.optimizer").starts_with("\ntrain.optimizer: how weights change\n" + lr));
  for (const char* key : {"sources[].path", "sources.path", "sources[0].path", "--sources[law].path"})
    EXPECT_TRUE(help_of(schema, key).starts_with("  sources[].path\n")) << key;
  EXPECT_EQ(error_of([&] { help_of(schema, "trian"); }),
            "[--help] unknown key 'trian'; did you mean 'train'?");
}

TEST(Help, ListsRareGroupsLast) {
  struct Group {
    RunConfig run;
    int64_t last = 0;
  } group;
  Schema schema;
  schema.group("run", group.run, "a run").rare();
  schema.field("last", group.last, "the last key");
  const std::string text = help(schema);
  EXPECT_LT(text.find("--last"), text.find("--run.name"));
}

TEST(Schema, DeclarationsAreChecked) {
  int a = 0, b = 0;
  Schema schema;
  schema.field("a", a, "");
  EXPECT_THROW(schema.field("a", b, ""), Error);
  EXPECT_THROW(schema.field("b.c", b, ""), Error);
  std::vector<Source> sources;
  EXPECT_THROW(schema.list("s", sources, "").shorthand("nothing"), Error);
}

struct WithTable {
  Table table;
};
void describe(Schema& s, WithTable& c) { s.field("table", c.table, "a table"); }

TEST(Dump, TablesAreReadBack) {
  WithTable config, again;
  Schema schema = schema_of(config), second = schema_of(again);
  load_text(schema, "table: {\"layers.0-3.*\": {rms_norm: eager, attn: 'null'}, x: {}}", "f.yaml");
  EXPECT_EQ(config.table, (Table{{"layers.0-3.*", {{"rms_norm", "eager"}, {"attn", "null"}}}, {"x", {}}}));
  load_text(second, dump(schema), "dump");
  EXPECT_EQ(again.table, config.table);
  load_text(second, "", "flags", {"--table", "{a: {b: c}}"});
  EXPECT_EQ(again.table, (Table{{"a", {{"b", "c"}}}}));
  for (const char* wrong : {"table: 3", "table: {a: b}", "table: {a: {b: null}}", "table: {a: {b: [c]}}"})
    EXPECT_THROW(load_text(second, wrong, "f.yaml"), Error) << wrong;
}

}  // namespace
}  // namespace temper::config
