#pragma once
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/random.h"
#include "recipes/setup/data_sets.h"
#include "recipes/setup/run_setup.h"

// What a training benchmark learns from, step after step.
namespace temper {

using Rows = std::vector<data::PackedRow>;

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual Rows next() = 0;  // empty behind the last step
};

struct RowSizes {
  int64_t rows, length, documents = 1;
};

// Tokens of a file of int32 (until its last whole step), or random ones without end; a row has `documents`
// documents, each longer than the one before by the first one's length.
class TokenRows : public RowSource {
 public:
  TokenRows(RowSizes sizes, int64_t vocab, const std::string& file) : sizes_(sizes), vocab_(vocab) {
    if (file.empty()) return;
    file_.open(file, std::ios::binary);
    if (!file_) fail("{}: cannot be read", file);
  }
  Rows next() override {
    const Random random(1, RandomPurpose::kData, step_++);
    Rows rows(static_cast<size_t>(sizes_.rows));
    uint64_t element = 0;
    for (data::PackedRow& row : rows) {
      row.ids.resize(static_cast<size_t>(sizes_.length));
      if (file_.is_open()) {
        if (!file_.read(reinterpret_cast<char*>(row.ids.data()), sizes_.length * 4)) return {};
      } else {
        for (int32_t& id : row.ids)
          id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab_), element++));
      }
      row.targets.assign(row.ids.begin() + 1, row.ids.end());
      row.targets.push_back(data::kIgnore);
      const int64_t all = sizes_.documents * (sizes_.documents + 1) / 2;
      for (int64_t d = 0, end = 0; d < sizes_.documents; ++d) {
        const int64_t begin = end;
        end = (d + 1) * (d + 2) / 2 * sizes_.length / all;
        row.document_lengths.push_back(static_cast<int32_t>(end - begin));
        row.targets[static_cast<size_t>(end - 1)] = data::kIgnore;
      }
    }
    return rows;
  }

 private:
  RowSizes sizes_;
  int64_t vocab_;
  uint64_t step_ = 0;
  std::ifstream file_;
};

// The dialogues of a data file as `temper train` renders, masks and packs them, for one epoch. Whole steps
// are made before they are asked for, so that they cost no time.
class DialogueRows : public RowSource {
 public:
  DialogueRows(RowSizes sizes, const std::string& model_folder, const std::string& file) {
    recipes::RunConfig config;
    config.model.path = model_folder;
    config.data.train = {{.path = file}};
    config.data.max_length = sizes.length;
    config.train.rows_per_step = sizes.rows;
    config.train.threads.pin = Pinning::kOff;
    const recipes::RunSetup setup(config);
    const recipes::DataSets sets = recipes::DataSets::load(config, setup.text, data::Goal::kLanguageModel);
    data::LoaderOptions options = recipes::loader_options(config);
    options.num_epochs = 1;
    data::BatchMaker maker(sets.train, options);
    while (std::optional<data::Batch> batch = maker.next())
      if (static_cast<int64_t>(batch->rows.size()) == sizes.rows) steps_.push_back(std::move(batch->rows));
  }
  Rows next() override { return at_ < steps_.size() ? steps_[at_++] : Rows{}; }

  // One line of JSON for each of the first steps: the ids of its documents, and the target of each.
  void write(const std::string& file, int64_t steps) const {
    std::ofstream out(file);
    for (size_t i = 0; i < std::min(steps_.size(), static_cast<size_t>(steps)); ++i) {
      Json::Array ids, targets;
      for (const data::PackedRow& row : steps_[i]) {
        auto id = row.ids.begin();
        auto target = row.targets.begin();
        for (const int64_t length : row.document_lengths) {
          ids.emplace_back(Json::Array(id, id + length));
          targets.emplace_back(Json::Array(target, target + length));
          id += length, target += length;
        }
      }
      out << Json(Json::Object{{"ids", ids}, {"targets", targets}}).dump() << '\n';
    }
    if (!out.flush()) fail("{}: cannot be written", file);
  }

 private:
  std::vector<Rows> steps_;
  size_t at_ = 0;
};

}  // namespace temper
