#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "base/json/json.h"

// Files with a JSON object that several processes of a user read and write: what was measured on a machine.
// They are hints: a broken one costs measuring again, with a warning, and stops nothing.
namespace temper {

// An empty object where the file is missing or, with a warning that names `what`, broken.
Json read_shared_json(const std::string& file, std::string_view what);

// Reads the object as it is now, lets `change` change it and writes it, all under a lock (FILE.lock) that the
// system ends with its process: what two processes change is merged, not lost. On file systems without locks
// the last one wins. An Error when the file or its folder, which is made, cannot be written.
void update_shared_json(const std::string& file, std::string_view what,
                        const std::function<void(Json& object)>& change);

}  // namespace temper
