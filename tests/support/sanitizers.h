#pragma once

namespace temper {

// Whether a sanitizer keeps freed memory and takes more of its own, so that a process's pages say nothing of
// ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerTakesMemory = true;
#else
inline constexpr bool kSanitizerTakesMemory = false;
#endif

}  // namespace temper
