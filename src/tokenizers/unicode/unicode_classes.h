#pragma once
#include <cstdint>
#include <span>

namespace temper::tokenizers {

// The CharacterClass of every character in Unicode 16, whose tables the `tokenizers` library has: code point
// << 8 | class where a run of one class begins, in order, from 0 on. Line ends are kSpace here.
std::span<const uint32_t> unicode_class_runs();

}  // namespace temper::tokenizers
