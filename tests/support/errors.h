#pragma once
#include <functional>
#include <string>

#include "base/error.h"

namespace temper {

// The message of the Error that `act` throws, which must be of this kind; empty when it throws none.
std::string error_of(const std::function<void()>& act, ErrorKind kind = ErrorKind::kInput);

void expect_has(const std::string& text, const std::string& part);

}  // namespace temper
