#pragma once
#include "rollout/requests/request.h"

namespace temper::rollout {

// What requests to one engine must fit.
struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t context = 0;       // tokens of prompt and answer that the model can read
  int64_t cache_tokens = 0;  // tokens that the cache has room for
  bool has_tokenizer = false;

  // An Error says why a request can never be answered: an empty prompt, one as long as the context, an id
  // outside the vocabulary, more tokens than the cache has room for, stop strings without a tokenizer.
  void check(const Request& request) const;
};

}  // namespace temper::rollout
