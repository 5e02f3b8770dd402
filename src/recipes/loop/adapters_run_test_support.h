#pragma once
#include <filesystem>

#include "base/files.h"
#include "recipes/keys/adapter_config.h"
#include "recipes/loop/learners.h"

namespace temper::recipes {

// A run that would train adapters (none: the model) of a tiny model, whose weights are not there.
class AdaptersRun {
 public:
  explicit AdaptersRun(const std::vector<std::string>& names)
      : setup((write_files(), config_of(names))), learners(setup) {}

  std::string output() const { return folder_ / "run"; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& learner : learners) found.push_back(learner->name());
    return found;
  }

 private:
  void write_files() const {
    const std::string goldens = TEMPER_SOURCE_DIR "/tests/goldens";
    make_directories(folder_ / "model");
    Json config = Json::parse_file(goldens + "/qwen3_trained/config.json");
    config.set("vocab_size", 1024);
    write_file(folder_ / "model/config.json", config.dump());
    std::filesystem::copy(goldens + "/tokenizer_gpt2/tokenizer.json", folder_ / "model/tokenizer.json");
    write_file(folder_ / "rows.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"three four\"}\n");
  }
  RunConfig config_of(const std::vector<std::string>& names) const {
    RunConfig config;
    config.recipe = "sft";
    config.model.path = folder_ / "model";
    config.output = output();
    config.data.train = {{.path = folder_ / "rows.jsonl"}};
    config.data.max_length = 32;
    config.train.steps = 4;
    config.train.rows_per_step = 1;
    for (const std::string& name : names) config.adapters.push_back({.name = name});
    return config;
  }

  TemporaryDirectory folder_;

 public:
  RunSetup setup;
  Learners learners;
};

}  // namespace temper::recipes
