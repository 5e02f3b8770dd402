#include "rollout/generation_config.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/shown.h"

namespace temper::rollout {
namespace {

constexpr size_t kListed = 10;  // of a kind, one by one

// Keys without effect on the result here: bookkeeping, other engines' caches, training-time outputs.
const std::set<std::string, std::less<>> kNoEffect = {"_from_model_config",
                                                      "transformers_version",
                                                      "bos_token_id",
                                                      "pad_token_id",
                                                      "decoder_start_token_id",
                                                      "use_cache",
                                                      "cache_implementation",
                                                      "output_attentions",
                                                      "output_hidden_states",
                                                      "output_scores",
                                                      "output_logits",
                                                      "return_dict_in_generate",
                                                      "max_length",
                                                      "_commit_hash"};

// Settings whose default changes nothing.
bool is_neutral(std::string_view key, const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (!value.is_number()) return false;
  const double number = value.as_double();
  const bool one = key == "num_beams" || key == "num_return_sequences" || key == "length_penalty" ||
                   key == "typical_p" || key == "num_beam_groups" || key == "encoder_repetition_penalty";
  return number == (one ? 1 : 0);
}

// Those below `vocab_size` go to `stop_ids`; the others except -1, which means none, are the result.
std::vector<int64_t> read_stop_ids(const Json& config, const std::string& where, int64_t vocab_size,
                                   std::vector<int32_t>& stop_ids) {
  std::vector<int64_t> beyond;
  std::unordered_set<int64_t> known(stop_ids.begin(), stop_ids.end());
  const Json* value = config.find("eos_token_id");
  if (value == nullptr || value->is_null()) return beyond;
  const Json::Array list = value->is_array() ? value->as_array() : Json::Array{*value};
  for (const Json& id : list) {
    if (!id.is_int())
      fail("[{}] eos_token_id has {}, expected an integer or a list of integers", where, id.dump());
    const int64_t number = id.as_int();
    if (number < 0 || number >= vocab_size) {
      if (number != -1) beyond.push_back(number);
    } else if (known.insert(number).second) {
      stop_ids.push_back(static_cast<int32_t>(number));
    }
  }
  return beyond;
}

double read_number(const Json& value, const std::string& where, const std::string& key, double lowest) {
  if (!value.is_number() || value.as_double() < lowest)
    fail("[{}] {} is {}, expected a number of {} or more", where, key, value.dump(), lowest);
  return value.as_double();
}

}  // namespace

std::vector<int32_t> end_tokens(const Json& config, const std::string& where, int64_t vocab_size) {
  std::vector<int32_t> ids;
  read_stop_ids(config, where, vocab_size, ids);
  // Of a model that also reads pictures.
  if (const Json* text = config.find("text_config"); ids.empty() && text != nullptr && text->is_object())
    read_stop_ids(*text, where + ": text_config", vocab_size, ids);
  return ids;
}

Request read_generation_config(const std::string& model_folder, int64_t vocab_size) {
  Request options;
  const std::string model_file = join_path(model_folder, "config.json");
  if (exists(model_file)) options.stop_ids = end_tokens(Json::parse_file(model_file), model_file, vocab_size);
  const std::string where = join_path(model_folder, "generation_config.json");
  if (!exists(where)) return options;
  const Json config = Json::parse_file(where);
  if (!config.is_object()) fail("[{}] expected an object, found {}", where, config.kind_name());
  const std::vector<int64_t> beyond = read_stop_ids(config, where, vocab_size, options.stop_ids);
  const auto effect = [&](const std::string& id, std::string_view pronoun) {
    log_warning(
        fmt::format("[{}] eos_token_id has {}, but the tokens are 0 to vocab_size - 1 = {}; {} no effect",
                    where, id, vocab_size - 1, pronoun));
  };
  for (size_t i = 0; i < std::min(beyond.size(), kListed); ++i)
    effect(fmt::format("{}", beyond[i]), "it has");
  if (beyond.size() > kListed) effect(fmt::format("{} more such ids", beyond.size() - kListed), "they have");
  bool do_sample = false;
  size_t unsupported = 0;
  options.sampling.temperature = 1;
  for (const auto& [key, value] : config.as_object()) {
    if (value.is_null() || key == "eos_token_id" || kNoEffect.contains(key)) continue;
    if (key == "do_sample") {
      if (!value.is_bool()) fail("[{}] do_sample is {}, expected true or false", where, value.dump());
      do_sample = value.as_bool();
    } else if (key == "temperature")
      options.sampling.temperature = read_number(value, where, key, 0);
    else if (key == "top_p")
      options.sampling.top_p = read_number(value, where, key, 0);
    else if (key == "min_p")
      options.sampling.min_p = read_number(value, where, key, 0);
    else if (key == "top_k")
      options.sampling.top_k = static_cast<int64_t>(read_number(value, where, key, 0));
    else if (key == "repetition_penalty")
      options.sampling.repetition_penalty = read_number(value, where, key, 1e-6);
    else if (key == "max_new_tokens")
      options.max_new_tokens = static_cast<int64_t>(read_number(value, where, key, 1));
    else if (!is_neutral(key, value) && ++unsupported <= kListed)
      log_warning(fmt::format("[{}] {} = {} is not supported and has no effect", where, shortened(key),
                              shortened(value.dump())));
  }
  if (unsupported > kListed)
    log_warning(
        fmt::format("[{}] {} more keys are not supported and have no effect", where, unsupported - kListed));
  if (!do_sample) options.sampling.temperature = 0;
  return options;
}

}  // namespace temper::rollout
