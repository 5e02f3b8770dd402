#include "models/config_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::models {

namespace {

// Keys that libraries write into every config.json and that say nothing about a forward pass.
const std::set<std::string, std::less<>> kOfEveryModel = {"architectures",
                                                          "model_type",
                                                          "transformers_version",
                                                          "dtype",
                                                          "torch_dtype",
                                                          "use_cache",
                                                          "_name_or_path",
                                                          "_commit_hash",
                                                          "_attn_implementation_autoset",
                                                          "attn_implementation",
                                                          "sep_token_id",
                                                          "decoder_start_token_id",
                                                          "output_attentions",
                                                          "output_hidden_states",
                                                          "return_dict",
                                                          "return_dict_in_generate",
                                                          "output_scores",
                                                          "torchscript",
                                                          "use_bfloat16",
                                                          "pruned_heads",
                                                          "is_encoder_decoder",
                                                          "is_decoder",
                                                          "add_cross_attention",
                                                          "cross_attention_hidden_size",
                                                          "tie_encoder_decoder",
                                                          "chunk_size_feed_forward",
                                                          "gradient_checkpointing",
                                                          "tokenizer_class",
                                                          "prefix",
                                                          "problem_type",
                                                          "id2label",
                                                          "label2id",
                                                          "num_labels",
                                                          "task_specific_params",
                                                          "finetuning_task",
                                                          "pretraining_tp",
                                                          "max_length",
                                                          "min_length",
                                                          "do_sample",
                                                          "early_stopping",
                                                          "num_beams",
                                                          "num_beam_groups",
                                                          "diversity_penalty",
                                                          "temperature",
                                                          "top_k",
                                                          "top_p",
                                                          "typical_p",
                                                          "repetition_penalty",
                                                          "length_penalty",
                                                          "no_repeat_ngram_size",
                                                          "encoder_no_repeat_ngram_size",
                                                          "bad_words_ids",
                                                          "num_return_sequences",
                                                          "forced_bos_token_id",
                                                          "forced_eos_token_id",
                                                          "remove_invalid_values",
                                                          "exponential_decay_length_penalty",
                                                          "suppress_tokens",
                                                          "begin_suppress_tokens",
                                                          "tf_legacy_loss"};

}  // namespace

ConfigReader::ConfigReader(const Json& config, std::string where)
    : config_(config), where_(std::move(where)) {
  if (!config.is_object()) fail("[{}] expected an object, found {}", where_, config.kind_name());
}

const Json* ConfigReader::find(const std::string& key) {
  asked_.insert(key);
  const Json* value = config_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::is_null(const std::string& key) {
  return find(key) == nullptr && config_.find(key) != nullptr;
}

void ConfigReader::refuse_training(const std::string& key, const std::string& problem) {
  refused_training_.emplace_back(key, problem);
}

void ConfigReader::refuse(const std::string& key, const std::string& problem) const {
  fail("[{}] {} {}", where_, key, problem);
}

int64_t ConfigReader::integer(const std::string& key, int64_t otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_int()) refuse(key, fmt::format("is {}, expected an integer", value->dump()));
  return value->as_int();
}

int64_t ConfigReader::positive(const std::string& key, int64_t most) {
  if (find(key) == nullptr) refuse(key, "is missing; is this a Hugging Face model folder?");
  const int64_t value = integer(key, 0);
  if (value <= 0 || value > most) refuse(key, fmt::format("is {}, expected 1 to {}", value, most));
  return value;
}

int64_t ConfigReader::positive(const std::string& key, int64_t otherwise, int64_t most) {
  return find(key) == nullptr ? otherwise : positive(key, most);
}

double ConfigReader::number(const std::string& key, double otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(key, fmt::format("is {}, expected a number", value->dump()));
  return value->as_double();
}

double ConfigReader::not_negative(const std::string& key, double otherwise) {
  const double value = number(key, otherwise);
  if (value < 0) refuse(key, fmt::format("is {}, expected 0 or more", value));
  return value;
}

bool ConfigReader::boolean(const std::string& key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) refuse(key, fmt::format("is {}, expected true or false", value->dump()));
  return value->as_bool();
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, fmt::format("is {}, expected a string", value->dump()));
  return value->as_string();
}

void ConfigReader::expect(const std::string& key, const Json& neutral, const std::string& why) {
  const Json* value = find(key);
  if (value == nullptr || *value == neutral) return;
  if (value->is_number() && neutral.is_number() && value->as_double() == neutral.as_double()) return;
  refuse(key, fmt::format("is {}; {}", value->dump(), why));
}

void ConfigReader::add_warning(const std::string& key, const std::string& problem) {
  warnings_.push_back(fmt::format("[{}] {} {}", where_, key, problem));
}

void ConfigReader::add_unused(const std::string& key) { parts_.push_back(key); }

std::vector<std::string> ConfigReader::unused() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : config_.as_object())
    if (!asked_.contains(key) && !kOfEveryModel.contains(key)) keys.push_back(key);
  keys.insert(keys.end(), parts_.begin(), parts_.end());
  return keys;
}

std::vector<std::string> ConfigReader::without_usual(std::vector<std::string> keys) {
  std::erase_if(keys, [](const std::string& key) { return kOfEveryModel.contains(key); });
  return keys;
}

std::vector<std::string> ConfigReader::absent() const {
  std::vector<std::string> absent;
  for (const std::string& key : asked_)
    if (config_.find(key) == nullptr) absent.push_back(key);
  return absent;
}

std::string ConfigReader::misspelt(const std::string& unused, const std::vector<std::string>& absent) {
  constexpr size_t kLetters = 2;
  return nearest_name(unused, absent, kLetters);
}

}  // namespace temper::models
