// The small files of models' folders: where answers stop, what files name of others, which files are left
// out.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "checkpoints/files/names.h"
#include "checkpoints/files/other_files.h"
#include "checkpoints/files/references.h"
#include "checkpoints/stop_tokens.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

TEST(StopTokens, AreThoseOfGenerationConfig) {
  const TemporaryDirectory folder;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(stop_tokens_of(folder.path()), Ids());
  const std::string file = folder / "generation_config.json";
  for (const auto& [text, ids] :
       std::vector<std::pair<std::string, Ids>>{{"{}", {}},
                                                {R"({"eos_token_id": null})", {}},
                                                {R"({"eos_token_id": 5})", {5}},
                                                {R"({"eos_token_id": []})", {}},
                                                {R"({"eos_token_id": [7, 5]})", {7, 5}}}) {
    write_file(file, text);
    EXPECT_EQ(stop_tokens_of(folder.path()), ids) << text;
  }
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"[5]", "generation_config.json] expected an object, found an array"},
           {R"({"eos_token_id": "five"})",
            "eos_token_id has \"five\", expected an integer or a list of integers"},
           {R"({"eos_token_id": [5, 1.5]})",
            "eos_token_id has 1.5, expected an integer or a list of integers"}}) {
    write_file(file, text);
    expect_has(error_of([&] { stop_tokens_of(folder.path()); }), said);
    expect_has(error_of([&] { add_stop_tokens(folder.path(), {1}); }), said);
  }
}

TEST(StopTokens, AreAddedToWhatIsThere) {
  const TemporaryDirectory folder;
  const std::string file = folder / "generation_config.json";
  add_stop_tokens(folder.path(), {});
  EXPECT_FALSE(exists(file)) << "there is nothing to add";
  add_stop_tokens(folder.path(), {3, 9});
  EXPECT_EQ(stop_tokens_of(folder.path()), (std::vector<int32_t>{3, 9}));
  const std::string text = R"({"eos_token_id":   9, "top_k": 20})";
  write_file(file, text);
  add_stop_tokens(folder.path(), {9});
  EXPECT_EQ(read_file(file), text) << "it says so already";
  add_stop_tokens(folder.path(), {4, 9});
  EXPECT_EQ(Json::parse_file(file), Json(Json::Object{{"eos_token_id", Json::Array{9, 4}}, {"top_k", 20}}));
}

class ReferencesTest : public testing::Test {
 protected:
  Json resolved(const std::string& name, const std::string& json) {
    testing::internal::CaptureStderr();
    Json found = references_.resolve(name, Json::parse(json, name));
    printed_ = testing::internal::GetCapturedStderr();
    return found;
  }
  TemporaryDirectory folder_;
  References references_{folder_.path()};
  std::string printed_;
};

TEST_F(ReferencesTest, OfCode) {
  write_file(folder_ / "own.py", "");
  write_file(folder_ / "neighbour.py", "");
  struct Case {
    std::string map, left, dropped;
  };
  int number = 0;  // of a file, each of which is reported once
  for (const Case& each : std::vector<Case>{
           {R"({"A":"own.Class"})", R"({"A":"own.Class"})", ""},
           {R"({"A":"own"})", "", "auto_map.A (\"own\")"},
           {R"({"A":"gone.Class"})", "", "auto_map.A (\"gone.Class\")"},
           {R"({"A":"hub/x--own.Class"})", "", "auto_map.A"},
           {R"({"A":"own--x.Class"})", "", "auto_map.A"},
           {R"({"A":"../own.Class"})", "", "auto_map.A"},
           {R"({"A":"x/own.Class"})", "", "auto_map.A"},
           {R"({"A":null,"B":3})", R"({"A":null,"B":3})", ""},
           {R"({"A":["own.Slow",null]})", R"({"A":["own.Slow",null]})", ""},
           {R"({"A":["gone.Slow",null]})", "", "auto_map.A ([\"gone.Slow\", null])"},
           {R"({"A":["gone.Slow",3]})", R"({"A":[null,3]})", "auto_map.A ([\"gone.Slow\", 3])"},
           {R"({"A":{"impl":"own.Pipeline"}})", R"({"A":{"impl":"own.Pipeline"}})", ""},
           {R"({"A":{"impl":3},"B":{"type":"text"}})", R"({"A":{"impl":3},"B":{"type":"text"}})", ""},
           {R"({"A":{"impl":"gone.Pipeline"}})", "", "auto_map.A"}}) {
    SCOPED_TRACE(each.map);
    const Json left = resolved(fmt::format("{}.json", number++), R"({"auto_map":)" + each.map + "}");
    const std::string expected = each.left.empty() ? "{}" : R"({"auto_map":)" + each.left + "}";
    EXPECT_EQ(left, Json::parse(expected, "expected"));
    if (each.dropped.empty())
      EXPECT_EQ(printed_, "");
    else
      expect_has(printed_, "what names no file of this folder: " + each.dropped);
  }
  EXPECT_EQ(references_.files(), (std::set<std::string>{"neighbour.py", "own.py"}))
      << "code imports its neighbours";
}

TEST_F(ReferencesTest, OfFilesAndProcessors) {
  write_file(folder_ / "words.model", "");
  write_file(folder_ / "processor_config.json", "");
  const std::string kept =
      R"({"auto_map":3,"a_file":null,"b_file":"words.model","c_file":4,"processor_class":"P"})";
  EXPECT_EQ(resolved("kept.json", kept), Json::parse(kept, "kept"));
  EXPECT_EQ(references_.files(), (std::set<std::string>{"processor_config.json", "words.model"}));
  EXPECT_EQ(resolved("list.json", "[1]"), Json(Json::Array{1}));
  int number = 0;
  for (const char* file : {"gone.model", "../words.model", "/etc/passwd", ""}) {
    const std::string name = fmt::format("files_{}.json", ++number);
    EXPECT_EQ(resolved(name, Json(Json::Object{{"x", Json::Object{{"a_file", file}}}}).dump()),
              Json(Json::Object{{"x", Json::Object{}}}));
    expect_has(printed_, fmt::format("leaves out of {} what names no file of this folder: x.a_file (\"{}\")",
                                     name, file));
  }
}

TEST_F(ReferencesTest, AreReportedOnceForEachFile) {
  const std::string json = R"({"a_file":"gone"})";
  EXPECT_EQ(resolved("config.json", json), Json(Json::Object{}));
  expect_has(printed_, fmt::format("[{}] what is saved leaves out of config.json", folder_.path()));
  EXPECT_EQ(resolved("config.json", json), Json(Json::Object{}));
  EXPECT_EQ(printed_, "");
  resolved("other.json", json);
  expect_has(printed_, "leaves out of other.json");
}

// A model that was made, not read.
TEST_F(ReferencesTest, WithoutAFolderNothingIsThere) {
  write_file(folder_ / "own.py", "");
  references_ = References("");
  const std::string json =
      R"({"auto_map":{"A":"own.Class"},"processor_class":"P","special_tokens_map_file":"own.py"})";
  EXPECT_EQ(resolved("made.json", json), Json(Json::Object{{"processor_class", "P"}}));
  expect_has(printed_,
             "[model] what is saved leaves out of made.json what names no file of this folder: "
             "auto_map.A (\"own.Class\"), special_tokens_map_file (\"own.py\")");
  EXPECT_TRUE(references_.files().empty());
}

TEST(OtherFiles, WeightsThatAreNotRead) {
  const TemporaryDirectory folder;
  for (const char* name :
       {"model.safetensors.index.json", "a.safetensors", "b.safetensors", "adapter_model.bin",
        "training_args.bin", "model.h5", "model.onnx", "rng_state_0.pth", "x.msgpack"})
    write_file(folder / name, "{}");
  const std::vector<std::string> others{"adapter_model.bin", "model.h5", "model.onnx", "x.msgpack"};
  std::vector<std::string> all = others;
  all.insert(all.begin(), {"a.safetensors", "b.safetensors"});
  std::sort(all.begin(), all.end());
  EXPECT_EQ(unread_weights(folder.path()), all) << "the index names none";
  write_file(folder / "model.safetensors.index.json", R"({"weight_map": {"w": "a.safetensors"}})");
  all.erase(std::find(all.begin(), all.end(), "a.safetensors"));
  EXPECT_EQ(unread_weights(folder.path()), all);
  write_file(folder / "model.safetensors", "");
  all.insert(all.begin(), "a.safetensors");
  EXPECT_EQ(unread_weights(folder.path()), all) << "one file alone is read, whatever the index says";
}

TEST(OtherFiles, NothingIsLeftOutOfNoFolder) {
  const TemporaryDirectory folder;
  write_file(folder / "file", "");
  write_file(folder / "config.json", "");
  const auto warning = [&](const std::string& original) {
    testing::internal::CaptureStderr();
    report_left_out(original, {"file"});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(""), "");
  EXPECT_EQ(warning(folder / "file"), "");
  EXPECT_EQ(warning(folder / "none"), "");
  EXPECT_EQ(warning(folder.path()), "") << "all of it is saved";
}

TEST(Names, OfFiles) {
  for (const char* name : {"a", "a.b", "..a", "a b", "ä"}) EXPECT_TRUE(is_plain_name(name)) << name;
  for (const char* name : {"", ".", "..", "a/b", "a\\b", "a\nb", "\x1f"})
    EXPECT_FALSE(is_plain_name(name)) << name;
}

TEST(Names, NearestOfTheSameLayer) {
  const std::string far(300, 'x');
  EXPECT_EQ(nearest_tensor("layers.1.nrom", {"layers.2.nrom", "layers.1.norm", far}), "layers.1.norm");
  EXPECT_EQ(nearest_tensor("nrom", {"layers.1.norm", "norm"}), "norm");
  EXPECT_EQ(nearest_tensor("layers.1.norm", {"norm", "layers.2.norm"}), "layers.2.norm")
      << "of another layer";
  EXPECT_EQ(nearest_tensor("norm", {far}), "");
}

}  // namespace
}  // namespace temper::checkpoints
