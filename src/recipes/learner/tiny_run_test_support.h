#pragma once
#include <filesystem>

#include "base/files.h"
#include "models/model.h"
#include "recipes/learner/learner_inputs.h"

namespace temper::recipes {

// The files of a run that trains adapters (none: the model) of a tiny model.
class TinyRunFiles {
 public:
  TinyRunFiles() {
    const std::string goldens = TEMPER_SOURCE_DIR "/tests/goldens";
    make_directories(folder_ / "model");
    Json config = Json::parse_file(goldens + "/qwen3_trained/config.json");
    config.set("vocab_size", 1024);
    write_file(folder_ / "model/config.json", config.dump());
    std::filesystem::copy(goldens + "/tokenizer_gpt2/tokenizer.json", folder_ / "model/tokenizer.json");
    write_file(folder_ / "rows.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"three four\"}\n");
  }
  std::string output() const { return folder_ / "run"; }
  // The model is one without weights, until save_weights().
  RunConfig config(const std::vector<std::string>& adapters = {}) const {
    RunConfig config;
    config.recipe = "sft";
    config.model.path = exists(folder_ / "weights") ? folder_ / "weights" : folder_ / "model";
    config.output = output();
    config.data.train = {{.path = folder_ / "rows.jsonl"}};
    config.data.max_length = 32;
    config.train.steps = 4;
    config.train.rows_per_step = 1;
    for (const std::string& name : adapters) config.adapters.push_back({.name = name});
    return config;
  }
  void save_weights() const {
    const std::string file = folder_ / "model/config.json";
    const auto model = models::build_model(Json::parse_file(file), file, {});
    model->decoder.parameters().initialize(3, 0.1);
    models::save_model(*model, folder_ / "weights", folder_ / "model");
  }

 private:
  TemporaryDirectory folder_;
};

using ChangeConfig = std::function<void(RunConfig&)>;
inline void train_as_it_is(RunConfig&) {}
inline void train_adapter(RunConfig& config) { config.adapters = {{.name = "a"}}; }
inline void evaluate_rows(RunConfig& config) { config.data.eval = config.data.train; }

// What a learner of such a run is made from.
class TinyInputs {
 public:
  explicit TinyInputs(const ChangeConfig& change = train_as_it_is, bool with_weights = false) {
    if (with_weights) files.save_weights();
    RunConfig config = files.config();
    change(config);
    setup = std::make_unique<RunSetup>(config);
    if (with_weights) setup->load_weights({}, false);
    inputs = std::make_unique<LearnerInputs>(*setup, config, DataSets::load(config, setup->text));
  }

  TinyRunFiles files;
  std::unique_ptr<RunSetup> setup;
  std::unique_ptr<LearnerInputs> inputs;
};

}  // namespace temper::recipes
