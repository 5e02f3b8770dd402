#pragma once
#include <string>
#include <vector>

#include "base/error.h"

namespace temper {

// A shared library opened at run time and never closed: the program starts where it is not installed.
class DynamicLibrary {
 public:
  // The first of `names` that opens, as the system searches for it and then in `folders`. When none does,
  // `error()` says why and every other call fails.
  // Some libraries load parts of their own that look up the library's symbols: these must be seen by all.
  enum class Symbols { kOwn, kSeenByAll };
  explicit DynamicLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders = {},
                          Symbols symbols = Symbols::kOwn);

  bool opened() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  void* handle() const { return handle_; }

  // A function, or a variable of the library.
  template <class Function>
  void look_up(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(find(name));
  }

 private:
  void* find(const char* name) const;  // throws kResources when the library has no such function

  void* handle_ = nullptr;
  std::string error_, name_;
};

}  // namespace temper
