#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace temper::checkpoints {

// The eos_token_id of a folder's generation_config.json; none where it says nothing. An adapter's folder has
// one where its answers end with other tokens than its base model stops at.
std::vector<int32_t> stop_tokens_of(const std::string& folder);

// Adds tokens to it, which is made where it is not there.
void add_stop_tokens(const std::string& folder, const std::vector<int32_t>& ids);

}  // namespace temper::checkpoints
