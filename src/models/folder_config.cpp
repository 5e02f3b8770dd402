#include "models/folder_config.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/hf_folder.h"
#include "models/model.h"

namespace temper::models {
namespace {

// Some rows at a time; of different dtypes as float32, which is exact for every dtype of files.
bool equal_values(const checkpoints::ModelFolder& files, const std::string& one, const std::string& other) {
  const Tensor a = files.tensor(one), b = files.tensor(other);
  if (a.shape() != b.shape()) return false;
  const auto comparable = [&](const Tensor& rows) {
    return a.dtype() == b.dtype() ? rows : rows.to(DType::kF32, MemoryTag::kWorkspace);
  };
  constexpr int64_t kValues = 4 << 20;
  const int64_t step = std::max<int64_t>(1, kValues * a.dim(0) / std::max<int64_t>(1, a.numel()));
  for (int64_t row = 0; row < a.dim(0); row += step) {
    const int64_t count = std::min(step, a.dim(0) - row);
    const Tensor rows = a.narrow(0, row, count), others = b.narrow(0, row, count);
    const Tensor values = comparable(rows), other_values = comparable(others);
    if (std::memcmp(values.raw(), other_values.raw(), static_cast<size_t>(values.bytes())) != 0) return false;
    files.release(one, rows);
    files.release(other, others);
  }
  return true;
}

// The name of a tied tensor that the files hold with other numbers; "": there is none.
std::string other_than_tied(const checkpoints::ModelFolder& files, const WeightTable& table) {
  for (const WeightTable::Tied& tied : table.tied()) {
    const std::string& own = tied.spec.sources.front().name;
    const std::string& others = table.find(tied.other)->sources.front().name;
    const bool both = files.find(own) != nullptr && files.find(others) != nullptr;
    if (both && !equal_values(files, own, others)) return own;
  }
  return "";
}

bool has_weights(const std::string& folder) {
  return exists(join_path(folder, "model.safetensors")) ||
         exists(join_path(folder, "model.safetensors.index.json"));
}

void warn_once(const std::string& folder, const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(folder).second) return;
  log_warning(
      fmt::format("[{}] config.json ties the head to the embedding (tie_word_embeddings), but the files hold "
                  "another '{}': the head of the files is used, and models that are saved have it and "
                  "tie_word_embeddings: false. For a tied head, remove that tensor from the files",
                  folder, name));
}

}  // namespace

Json config_of_folder(const std::string& folder) {
  Json config = checkpoints::read_model_config(folder);
  const layers::DecoderConfig architecture = configure(config, join_path(folder, "config.json"));
  if (!architecture.tied_head || !has_weights(folder)) return config;
  const std::string name =
      other_than_tied(checkpoints::ModelFolder::open(folder), layers::decoder_weight_table(architecture));
  if (name.empty()) return config;
  warn_once(folder, name);
  config.set("tie_word_embeddings", false);
  return config;
}

}  // namespace temper::models
