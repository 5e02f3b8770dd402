#include "recipes/distill/stored_logits.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/weights_sample.h"
#include "collectives/at_root.h"
#include "recipes/distill/distill_keys.h"
#include "recipes/distill/logits_writer.h"
#include "recipes/setup/all_rows.h"
#include "training/objectives/gather_rows.h"
#include "training/passes/divided_tokens.h"

namespace temper::recipes {
namespace {

// All that stored logits depend on besides the rows, by the names that errors say.
Json origin_of(const ObjectiveInputs& inputs) {
  const DistillKeys& keys = distill_keys(inputs.config);
  const std::string tokenizer = join_path(inputs.config.model.path, "tokenizer.json");
  return Json::Object{{"distill.top_k", keys.top_k},
                      {"distill.temperature", keys.temperature},
                      {"the vocabulary's size", inputs.setup.architecture.vocab_size},
                      {"the tokenizer", exists(tokenizer) ? hash_file(tokenizer) : std::string("absent")},
                      {"the teacher's weights",
                       keys.teacher.empty() ? Json() : Json(checkpoints::sample_of_weights(keys.teacher))}};
}

// A run that names no teacher takes those of any.
void check_origin(const std::string& file, const Json& stored, const Json& wanted) {
  for (const auto& [name, value] : wanted.as_object()) {
    const Json* const was = stored.find(name);
    if (value.is_null() || (was != nullptr && *was == value)) continue;
    fail(
        "[distill.teacher_logits] {} is of another value of {} (was {}, is {}); restore that, or name a "
        "folder that is not there to compute the logits again",
        file, name, was != nullptr ? was->dump() : "absent", value.dump());
  }
}

// Which rows the logits are of: a run with the same ones needs not look each of them up.
Json rows_of(const ObjectiveInputs& inputs) {
  const DataConfig& data = inputs.config.data;
  return Json::Object{{"data.train", inputs.data.train.fingerprint()},
                      {"data.eval", inputs.data.eval ? inputs.data.eval->fingerprint() : Json()},
                      {"data.template_kwargs", data.template_kwargs},
                      {"data.chat_template", data.chat_template},
                      {"data.max_length", data.max_length},
                      {"data.overflow", static_cast<int64_t>(data.overflow)},
                      {"data.loss", static_cast<int64_t>(data.loss)}};
}

template <class T>
Tensor gathered(const layers::Decoder& teacher, collectives::Group& parts, const std::vector<T>& own,
                int64_t tokens, int64_t width, DType dtype) {
  std::vector<T> all;
  for (const std::vector<T>& one : parts.gather("a teacher's largest logits", std::span<const T>(own)))
    all.insert(all.end(), one.begin(), one.end());
  all = training::of_last_stage(teacher, "a teacher's largest logits", std::move(all), tokens * width);
  const Tensor tensor = Tensor::empty({tokens, width}, dtype, MemoryTag::kData);
  tensor.copy_from_host(all.data(), std::ssize(all) * int64_t{sizeof(T)});
  return tensor;
}

// Of all rows, on all ranks; each rank computes some of them.
losses::TopTokens tokens_of(const ObjectiveInputs& inputs, const layers::Decoder& teacher,
                            const std::vector<data::PackedRow>& rows) {
  const DistillKeys& keys = distill_keys(inputs.config);
  collectives::Group& parts = inputs.setup.groups->rows();
  std::vector<int32_t> ids;
  std::vector<float> logits, rest;
  const auto append = [](auto& all, const auto& values) {
    all.insert(all.end(), values.begin(), values.end());
  };
  training::read_top_tokens(teacher, training::rows_of_rank(rows, parts.rank(), parts.size()), keys.top_k,
                            keys.temperature, inputs.config.train.compute.micro_batch_tokens,
                            [&](const losses::TopTokens& some) {
                              append(ids, some.ids.values<int32_t>());
                              append(logits, some.logits.values<float>());
                              append(rest, some.rest.values<float>());
                            });
  const int64_t tokens = data::num_targets(rows);
  return {gathered(teacher, parts, ids, tokens, keys.top_k, DType::kI32),
          gathered(teacher, parts, logits, tokens, keys.top_k, DType::kF32),
          gathered(teacher, parts, rest, tokens, 1, DType::kF32)};
}

void compute(const ObjectiveInputs& inputs, const layers::Decoder& teacher) {
  const DistillKeys& keys = distill_keys(inputs.config);
  const double start = seconds_now();
  collectives::Group& ranks = inputs.setup.ranks;
  std::unique_ptr<LogitsWriter> writer;
  const auto write = [&](const std::function<void()>& act) {
    collectives::at_root(ranks, "storing a teacher's logits", act);
  };
  write([&] {
    writer = std::make_unique<LogitsWriter>(keys.teacher_logits, keys.top_k, inputs.config.model.dtype);
  });
  for_each_rows(inputs, "rows of the teacher", [&](const std::vector<data::PackedRow>& rows) {
    const losses::TopTokens tokens = tokens_of(inputs, teacher, rows);
    write([&] {
      int64_t first = 0;
      for (const data::PackedRow& row : rows) first = writer->add(row, tokens, first);
    });
  });
  const Json origin = origin_of(inputs), from = rows_of(inputs);
  write([&] {
    Json made_from = origin;
    made_from.set("rows", from);
    writer->close(made_from);
    log_info(fmt::format("teacher: its {} largest logits at {} tokens computed in {}, stored in {}",
                         keys.top_k, writer->num_tokens(), format_duration(seconds_now() - start),
                         keys.teacher_logits));
  });
}

}  // namespace

bool StoredLogits::are_in(const std::string& folder) {
  if (exists(join_path(folder, kLogitsIndex))) return true;
  if (!exists(folder)) return false;
  const std::vector<std::string> files = is_directory(folder) ? list_directory(folder) : std::vector{folder};
  for (const std::string& name : files)
    if (!name.starts_with("teacher_logits-"))
      fail(
          "[distill.teacher_logits] '{}' has no {}; expected a folder that such a run has written, or one "
          "that is not there",
          folder, kLogitsIndex);
  return false;  // a run was stopped while it wrote them
}

std::shared_ptr<const StoredLogits> StoredLogits::open_or_compute(const ObjectiveInputs& inputs,
                                                                  const MakeTeacher& make_teacher) {
  const DistillKeys& keys = distill_keys(inputs.config);
  collectives::Group& ranks = inputs.setup.ranks;
  const std::string found = collectives::made_at_root(ranks, "whether a teacher's logits are stored", [&] {
    return std::string(are_in(keys.teacher_logits) ? "yes" : "no");
  });
  if (found == "no") compute(inputs, *make_teacher());
  const std::string file = join_path(keys.teacher_logits, kLogitsIndex);
  const Json index = Json::parse_file(file), &from = index.at("made_from");
  check_origin(file, from, origin_of(inputs));
  collectives::at_root(ranks, "checking a teacher's logits", [&] {
    for (const Json& each : index.at("files").as_array())
      if (const std::string part = join_path(keys.teacher_logits, each.at("name").as_string());
          !exists(part) || hash_file(part) != each.at("hash").as_string())
        fail("[{}] is not what was stored; remove {} to compute the logits again", part, keys.teacher_logits);
  });
  std::shared_ptr<StoredLogits> stored(new StoredLogits(keys.teacher_logits, keys.top_k));
  stored->read(index);
  if (found == "yes") {
    log_info(fmt::format("teacher: its {} largest logits at {} tokens, from {}", keys.top_k,
                         index.at("tokens").as_int(), keys.teacher_logits));
    if (from.at("rows") != rows_of(inputs)) stored->check_rows(inputs);
  }
  return stored;
}

void StoredLogits::read(const Json& index) {
  for (const Json& each : index.at("files").as_array()) {
    const checkpoints::SafetensorsFile file(join_path(folder_, each.at("name").as_string()));
    const Tensor documents = file.tensor("documents"), starts = file.tensor("starts");
    for (int64_t d = 0; d < documents.numel(); ++d) {
      const int64_t first = starts.data<int64_t>()[d];
      documents_[static_cast<uint64_t>(documents.data<int64_t>()[d])] = {
          files_.size(), first, starts.data<int64_t>()[d + 1] - first};
    }
    files_.push_back({file.tensor("ids"), file.tensor("logits"), file.tensor("rest")});
  }
}

const StoredLogits::Place& StoredLogits::find(uint64_t document, int64_t targets) const {
  const auto found = documents_.find(document);
  if (found == documents_.end() || found->second.count != targets)
    fail(
        "[distill.teacher_logits] {} has no logits for a row of the data; the rows, the chat template, "
        "data.max_length, data.overflow and data.loss must be those that they were computed for; restore "
        "them, or name a folder that is not there to compute the logits again",
        folder_);
  return found->second;
}

void StoredLogits::check_rows(const ObjectiveInputs& inputs) const {
  for_each_rows(inputs, "rows of the teacher", [&](const std::vector<data::PackedRow>& rows) {
    for (const data::PackedRow& row : rows)
      for (const StoredDocument& document : documents_of(row))
        if (document.targets > 0) find(document.hash, document.targets);
  });
}

losses::TopTokens StoredLogits::of(std::span<const data::PackedRow> rows) const {
  const int64_t tokens = data::num_targets(rows);
  const losses::TopTokens all{Tensor::empty({tokens, top_k_}, DType::kI32, MemoryTag::kData),
                              Tensor::empty({tokens, top_k_}, DType::kF32, MemoryTag::kData),
                              Tensor::empty({tokens, 1}, DType::kF32, MemoryTag::kData)};
  int64_t next = 0;
  for (const data::PackedRow& row : rows)
    for (const StoredDocument& document : documents_of(row)) {
      if (document.targets == 0) continue;
      const Place& place = find(document.hash, document.targets);
      const File& file = files_[place.file];
      const losses::TopTokens here = all.narrow(next, place.count);
      here.ids.copy_from(file.ids.narrow(0, place.first, place.count));
      here.logits.copy_from(file.logits.narrow(0, place.first, place.count));
      here.rest.copy_from(file.rest.narrow(0, place.first, place.count).reshape({place.count, 1}));
      next += place.count;
    }
  return all;
}

}  // namespace temper::recipes
