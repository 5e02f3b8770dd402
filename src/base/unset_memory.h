#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace temper {

struct FreeMemory {
  void operator()(void* memory) const;
};

// An array whose elements are not set.
template <class T>
using UnsetArray = std::unique_ptr<T[], FreeMemory>;

// `bytes` that begin at a multiple of 64. What is large is asked for in huge pages, where the system has
// them: the first write to each small page costs more than filling it. OutOfMemory says what it was for: "a
// picture".
void* unset_bytes(int64_t bytes, const char* purpose);

template <class T>
UnsetArray<T> unset_array(int64_t count, const char* purpose) {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
  return UnsetArray<T>(static_cast<T*>(unset_bytes(count * static_cast<int64_t>(sizeof(T)), purpose)));
}

}  // namespace temper
