#pragma once
#include <cstdint>
#include <string>

#include "base/json/json.h"
#include "checkpoints/files/hashed_file.h"

// manifest.json of a training state: which files it has, and their sizes and hashes.
namespace temper::checkpoints {

inline constexpr const char* kManifestName = "manifest.json";

struct Manifest {
  int64_t step = 0;
  FileDigests files;
};

// What a manifest says of its files: {"state.json": {"size": 120, "hash": "…"}}.
Json files_to_json(const FileDigests& files);
FileDigests files_from_json(const Json& json);

void write_manifest(const std::string& folder, const Manifest& manifest);  // synced

// Throws for a manifest that is absent, cut short, of a newer version, or of another step than `step`.
Manifest read_manifest(const std::string& folder, int64_t step);

// Throws when a file is absent or differs in size, naming it, what was found and what was expected.
void check_sizes(const std::string& folder, const Manifest& manifest);
// Of every `parts`-th file, from the one of this part on.
void check_hashes(const std::string& folder, const Manifest& manifest, int part = 0, int parts = 1);

}  // namespace temper::checkpoints
