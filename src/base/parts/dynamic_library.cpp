#include "base/parts/dynamic_library.h"

#include <dlfcn.h>

#include "base/files.h"

namespace temper {

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                               Symbols symbols) {
  const auto open = [&](const std::string& name) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | (symbols == Symbols::kOwn ? RTLD_LOCAL : RTLD_GLOBAL));
    name_ = name;
    if (handle_ == nullptr && error_.empty()) error_ = dlerror();
    return handle_ != nullptr;
  };
  for (const std::string& name : names)
    if (open(name)) return;
  for (const std::string& folder : folders)
    for (const std::string& name : names)
      if (open(join_path(folder, name))) return;
}

void* DynamicLibrary::find(const char* name) const {
  invariant(opened(), "a library that did not open is asked for a function");
  void* found = dlsym(handle_, name);
  if (found == nullptr) fail_resources("[{}] has no function {}; install a newer version", name_, name);
  return found;
}

}  // namespace temper
