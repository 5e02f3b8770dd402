#include "recipes/preference/stored_reference.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/files/safetensors.h"
#include "collectives/at_root.h"
#include "models/architecture.h"
#include "models/folder_config.h"
#include "recipes/preference/preference_keys.h"
#include "recipes/setup/all_rows.h"
#include "templates/chat.h"
#include "training/objectives/gather_rows.h"

namespace temper::recipes {
namespace {

constexpr int64_t kMostAnswers = 2;  // of a document

std::string tensors_of(const std::string& json_file) {
  return json_file.substr(0, json_file.size() - std::string_view(".json").size()) + ".safetensors";
}

// Calls f(document's hash, its number of answers) for each document of a row.
template <class F>
void for_each_document(const data::PackedRow& row, F f) {
  size_t first = 0;
  for (size_t d = 0; d < row.document_lengths.size(); ++d) {
    const auto length = static_cast<size_t>(row.document_lengths[d]);
    const auto bytes = [&](const std::vector<int32_t>& values) {
      return std::string_view(reinterpret_cast<const char*>(values.data() + first), length * sizeof(int32_t));
    };
    uint64_t hash = hash64(bytes(row.targets), hash64(bytes(row.ids)));
    for (const data::Answer& answer : row.answers[d]) hash = hash64(std::to_string(answer.length), hash);
    f(hash, row.answers[d].size());
    first += length;
  }
}

// Of files in a folder, by name: those of these names, and those with one of these endings (".safetensors").
std::string hash_of_files(const std::string& folder, const std::vector<std::string>& chosen) {
  Hasher hasher;
  for (const std::string& name : list_directory(folder)) {
    const auto is_chosen = [&](const std::string& given) {
      return given.starts_with('.') ? name.ends_with(given) : name == given;
    };
    if (std::none_of(chosen.begin(), chosen.end(), is_chosen)) continue;
    const std::string digest = name + hash_file(join_path(folder, name));
    hasher.update(digest.data(), digest.size());
  }
  return hasher.digest();
}

constexpr const char* kWeights = "the reference model";
const std::string kArchitecture = "the reference model's ";  // before each key

Json keys_of_architecture(const std::string& model_folder) {
  const std::string file = join_path(model_folder, "config.json");
  const Json config = models::config_of_folder(model_folder);
  return models::architecture_json(config.at("model_type").as_string(), models::configure(config, file));
}

// All that the numbers depend on, by the names that errors say.
Json origin_of(const ObjectiveInputs& inputs, const std::string& model_folder) {
  const DataConfig& data = inputs.config.data;
  Json origin = Json::Object{
      {"data.train", inputs.data.train.fingerprint()},
      {"data.eval", inputs.data.eval ? inputs.data.eval->fingerprint() : Json()},
      {kWeights, hash_of_files(model_folder, {".safetensors"})},
      {"the tokenizer", hash_of_files(inputs.config.model.path, {"tokenizer.json"})},
      {"the chat template",
       hash_of_files(inputs.config.model.path, {"tokenizer_config.json", "chat_template.jinja"})},
      {"model.dtype", inputs.config.model.kept_in()},
      {"data.template_kwargs", data.template_kwargs},
      {"data.max_length", data.max_length},
      {"data.overflow", static_cast<int64_t>(data.overflow)},
      {"preference.share_prompts", preference_keys(inputs.config).share_prompts}};
  const Json architecture = keys_of_architecture(model_folder);
  for (const auto& [key, value] : architecture.as_object()) origin.set(kArchitecture + key, value);
  for (const std::string& name : templates::named_template_files(inputs.config.model.path))
    origin.set(name, hash_file(join_path(inputs.config.model.path, name)));
  // Only where they are not what files without them were made with.
  if (const std::string& chosen = data.chat_template; !chosen.empty())
    origin.set("data.chat_template", exists(chosen) ? hash_file(chosen) : chosen);
  if (data.loss != data::LossOn::kAllTurns) origin.set("data.loss", static_cast<int64_t>(data.loss));
  return origin;
}

// Files of older versions have one hash of the weights and of config.json.
Json as_older_versions_wrote(const Json& origin, const std::string& model_folder) {
  Json older = Json::Object{};
  for (const auto& [name, value] : origin.as_object())
    if (!name.starts_with(kArchitecture)) older.set(name, value);
  older.set(kWeights, hash_of_files(model_folder, {"config.json", ".safetensors"}));
  return older;
}

// A key that one side lacks is another value, too: versions may call it otherwise.
void check_origin(const std::string& file, const Json& stored, const Json& now) {
  const auto check = [&](const std::string& name) {
    const Json *was = stored.find(name), *is = now.find(name);
    if (was != nullptr && is != nullptr && *was == *is) return;
    const auto shown = [](const Json* value) { return value != nullptr ? value->dump() : "absent"; };
    fail(
        "[{}] holds log-probabilities of a run with another value of {} (was {}, is {}); restore that, "
        "choose another output, or delete the file to compute them again",
        file, name, shown(was), shown(is));
  };
  for (const auto& [name, value] : now.as_object()) check(name);
  for (const auto& [name, value] : stored.as_object()) check(name);
}

}  // namespace

StoredReference StoredReference::open_or_compute(const ObjectiveInputs& inputs,
                                                 const std::string& model_folder,
                                                 const MakeModel& make_model) {
  StoredReference stored(join_path(inputs.files.folder, "reference.json"));
  const Json origin = origin_of(inputs, model_folder);
  collectives::Group& ranks = inputs.setup.ranks;
  const std::string found = collectives::made_at_root(ranks, "whether references are stored", [&] {
    return std::string(exists(stored.file_) ? "yes" : "no");
  });
  if (found == "yes") {
    const Json file = Json::parse_file(stored.file_);
    const Json& from = file.at("computed_from");
    const bool older = from.find(kArchitecture + "vocab_size") == nullptr;
    check_origin(stored.file_, from, older ? as_older_versions_wrote(origin, model_folder) : origin);
    if (hash_file(tensors_of(stored.file_)) != file.at("hash").as_string())
      fail("[{}] is not what was stored; delete {} to compute it again", tensors_of(stored.file_),
           stored.file_);
    stored.read();
    log_info(fmt::format("reference: log-probabilities of {} documents, from {}", stored.logps_.size(),
                         stored.file_));
    return stored;
  }
  const double start = seconds_now();
  stored.compute(inputs, *make_model());
  collectives::at_root(ranks, "storing references", [&] { stored.write(origin); });
  log_info(fmt::format("reference: log-probabilities of {} documents of {} computed in {}, stored in {}",
                       stored.logps_.size(), model_folder, format_duration(seconds_now() - start),
                       stored.file_));
  return stored;
}

// Rank 0 reads the rows. Each rank computes some, with what it has of the model.
void StoredReference::compute(const ObjectiveInputs& inputs, const training::Reference& model) {
  collectives::Group& parts = inputs.setup.groups->rows();
  for_each_rows(inputs, "rows of the reference", [&](const std::vector<data::PackedRow>& rows) {
    const std::vector<double> own = model.logps(training::rows_of_rank(rows, parts.rank(), parts.size()));
    std::vector<double> logps;
    for (const std::vector<double>& one : parts.gather("references", std::span<const double>(own)))
      logps.insert(logps.end(), one.begin(), one.end());
    auto next = logps.begin();
    for (const data::PackedRow& row : rows)
      for_each_document(row, [&](uint64_t hash, size_t answers) {
        // As they come back from the file, so that a resumed run has the same bits.
        std::vector<double>& own = logps_[hash];
        own.clear();
        for (size_t i = 0; i < answers; ++i) own.push_back(static_cast<float>(*next++));
      });
  });
}

void StoredReference::write(const Json& origin) const {
  std::vector<uint64_t> hashes;
  for (const auto& [hash, logps] : logps_) hashes.push_back(hash);
  std::sort(hashes.begin(), hashes.end());
  const auto count = static_cast<int64_t>(hashes.size());
  const Tensor documents = Tensor::empty({count}, DType::kI64, MemoryTag::kData),
               values = Tensor::empty({count, kMostAnswers}, DType::kF32, MemoryTag::kData);
  std::fill_n(values.data<float>(), values.numel(), std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<double>& logps = logps_.at(hashes[static_cast<size_t>(i)]);
    documents.data<int64_t>()[i] = static_cast<int64_t>(hashes[static_cast<size_t>(i)]);
    for (size_t a = 0; a < logps.size(); ++a)
      values.data<float>()[i * kMostAnswers + static_cast<int64_t>(a)] = static_cast<float>(logps[a]);
  }
  checkpoints::SafetensorsWriter writer(tensors_of(file_), {{"documents", documents.shape(), DType::kI64},
                                                            {"logps", values.shape(), DType::kF32}});
  writer.add(documents);
  writer.add(values);
  const std::string hash = writer.close().hash;
  write_file(file_, Json(Json::Object{{"hash", hash}, {"computed_from", origin}}).dump(2) + "\n");
}

void StoredReference::read() {
  const checkpoints::SafetensorsFile file(tensors_of(file_));
  const Tensor documents = file.tensor("documents"), values = file.tensor("logps");
  for (int64_t i = 0; i < documents.numel(); ++i) {
    std::vector<double>& logps = logps_[static_cast<uint64_t>(documents.data<int64_t>()[i])];
    for (int64_t a = 0; a < kMostAnswers; ++a)
      if (const float logp = values.data<float>()[i * kMostAnswers + a]; logp == logp) logps.push_back(logp);
  }
}

std::vector<double> StoredReference::logps(const std::vector<data::PackedRow>& rows) const {
  std::vector<double> all;
  for (const data::PackedRow& row : rows)
    for_each_document(row, [&](uint64_t hash, size_t answers) {
      const auto found = logps_.find(hash);
      if (found == logps_.end() || found->second.size() != answers)
        fail("[{}] has no log-probabilities for a row of the data; delete the file to compute them again",
             file_);
      all.insert(all.end(), found->second.begin(), found->second.end());
    });
  return all;
}

}  // namespace temper::recipes
