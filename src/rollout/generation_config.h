#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "rollout/requests/request.h"

namespace temper::rollout {

// What a model folder says about generation, as a request without a prompt: generation_config.json (sampling,
// stop tokens, length) and config.json (stop tokens). Settings that Temper does not have are warned about by
// name, never dropped in silence. With do_sample false or absent the temperature is 0. Stop tokens are below
// `vocab_size`; others cannot occur, and those of config.json are warned about with the model.
Request read_generation_config(const std::string& model_folder, int64_t vocab_size);

// The tokens of a config.json's eos_token_id that can occur.
std::vector<int32_t> end_tokens(const Json& config, const std::string& where, int64_t vocab_size);

}  // namespace temper::rollout
