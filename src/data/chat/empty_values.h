#pragma once
#include "base/json/json.h"

// Fields without a value: tables fill them in where other rows have one.
namespace temper::data {

// Neither null nor an empty text, list or object.
bool holds_something(const Json& value);

// Without members of objects that are null, at any depth. Lists keep theirs: one may list null on purpose.
void remove_nulls(Json& value);

}  // namespace temper::data
