#include "rollout/requests/request_limits.h"

#include <algorithm>

#include "base/error.h"
#include "layers/decoder_input.h"

namespace temper::rollout {

void RequestLimits::check(const Request& request) const {
  const int64_t length = std::ssize(request.prompt);
  if (length == 0) fail("[generate] the prompt has no tokens; give some text, or use a chat template");
  if (length >= context)
    fail("[generate] the prompt has {} tokens; the model's context is {}", length, context);
  for (const std::vector<int32_t>* ids : {&request.prompt, &request.forced})
    layers::check_ids(*ids, vocab_size);
  if (request.max_new_tokens < 1)
    fail("[generate] max_new_tokens is {}, needs 1 or more", request.max_new_tokens);
  if (!(request.log_prob_temperature >= 0))
    fail("[generate] log_prob_temperature is {}, needs 0 or more", request.log_prob_temperature);
  if (!request.stop_strings.empty() && !has_tokenizer)
    fail("[generate] stop strings need the engine to have a tokenizer");
  const int64_t most = std::min(context, length + request.max_new_tokens);
  if (most > cache_tokens)
    fail(
        "[generate] a prompt of {} tokens and up to {} new ones need {} tokens of cache, it has room for {}; "
        "make the cache larger (cache_tokens), or ask for fewer new tokens",
        length, request.max_new_tokens, most, cache_tokens);
}

}  // namespace temper::rollout
