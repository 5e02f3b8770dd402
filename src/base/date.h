#pragma once
#include <string>

namespace temper {

std::string utc_now();  // "2026-11-27T21:30:05Z"

}  // namespace temper
