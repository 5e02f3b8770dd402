#pragma once
#include "data/rows/row.h"

namespace temper::data {

// A row that was tokenized before: input_ids; labels, which are the same ids, or -100 where a token is no
// target (without labels all are targets); attention_mask, whose zeros are padding at either end and are cut
// off; position_ids, which rise by one from 0 over what is left, as a row is one document. Ids are below
// `vocab_size`. Errors name the field and what was found.
Example read_tokens(const Json& row, int64_t vocab_size, LossOn loss);

}  // namespace temper::data
