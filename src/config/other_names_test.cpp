#include <gtest/gtest.h>

#include "base/files.h"
#include "config/load.h"
#include "tests/support/errors.h"

namespace temper::config {
namespace {

struct Named {
  std::string path, text;
  std::vector<std::string> files;
};
void describe(Schema& s, Named& c) {
  s.field("path", c.path, "a path");
  s.field("text", c.text, "a text");
  s.field("files", c.files, "paths").formerly("file_names");
  s.answer("their_name", "text");
  s.answer("their_way", "there is none; leave it out");
  s.answer("two_things", "text");
  s.answer("two_things", "path");
}

TEST(OtherNames, AreAnswered) {
  Named config;
  Schema schema = schema_of(config);
  const auto message = [&](const std::string& key) {
    return error_of([&] { load_text(schema, key + ": 1", "f.yaml"); });
  };
  EXPECT_EQ(message("their_name"), "[f.yaml:1] unknown key 'their_name'; Temper calls it 'text'");
  EXPECT_EQ(message("Their-Name"), "[f.yaml:1] unknown key 'Their-Name'; Temper calls it 'text'");
  EXPECT_EQ(message("their_way"), "[f.yaml:1] unknown key 'their_way'; there is none; leave it out");
  EXPECT_EQ(message("two_things"), "[f.yaml:1] unknown key 'two_things'; Temper calls it 'text' or 'path'");
}

TEST(OtherNames, OfOlderVersionsAreReadFromSavedFilesOnly) {
  const TemporaryDirectory folder;
  const std::string file = folder / "saved.yaml";
  write_file(file, "file_names: [a, b]\n");
  Named config;
  Schema schema = schema_of(config);
  EXPECT_EQ(error_of([&] { load(schema, file); }),
            fmt::format("[{}:1] unknown key 'file_names'; its name is 'files' now", file));
  load_saved(schema, file, {"--text", "t"});
  EXPECT_EQ(config.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.text, "t");
  EXPECT_TRUE(schema.was_written("files"));
  EXPECT_EQ(error_of([&] {
              load_saved(schema, file, {"--file_names", "[c]"});
            }),
            "[command line] unknown key 'file_names'; its name is 'files' now");
}

}  // namespace
}  // namespace temper::config
