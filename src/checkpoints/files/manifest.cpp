#include "checkpoints/files/manifest.h"

#include "base/error.h"
#include "base/threads/threads.h"
#include "checkpoints/files/names.h"

namespace temper::checkpoints {
namespace {

constexpr int64_t kVersion = 1;

Manifest parse_manifest(const Json& json) {
  if (const int64_t version = json.at("version").as_int(); version != kVersion)
    fail("found version {}, expected {}; use the Temper that wrote it", version, kVersion);
  return {json.at("step").as_int(), files_from_json(json.at("files"))};
}

}  // namespace

Json files_to_json(const FileDigests& files) {
  Json::Object all;
  for (const auto& [name, digest] : files)
    all.emplace_back(name, Json(Json::Object{{"size", digest.size}, {"hash", digest.hash}}));
  return all;
}

FileDigests files_from_json(const Json& json) {
  FileDigests files;
  for (const auto& [name, file] : json.as_object()) {
    if (!is_plain_name(name)) fail("found the file '{}', expected a plain name inside the folder", name);
    files[name] = {file.at("size").as_int(), file.at("hash").as_string()};
  }
  return files;
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  const Json json(
      Json::Object{{"version", kVersion}, {"step", manifest.step}, {"files", files_to_json(manifest.files)}});
  FileWriter writer(join_path(folder, kManifestName));
  writer.write(json.dump(2) + "\n");
  writer.close();
}

Manifest read_manifest(const std::string& folder, int64_t step) {
  const std::string path = join_path(folder, kManifestName);
  const Json json = Json::parse_file(path);
  Manifest manifest;
  try {
    manifest = parse_manifest(json);
  } catch (const Error& error) {
    fail("[{}] {}", path, error.what());
  }
  if (manifest.step != step) fail("[{}] found step {}, expected {}", path, manifest.step, step);
  return manifest;
}

void check_sizes(const std::string& folder, const Manifest& manifest) {
  for (const auto& [name, digest] : manifest.files) {
    const std::string path = join_path(folder, name);
    if (!exists(path)) fail("[{}] found no such file, {} says {} bytes", path, kManifestName, digest.size);
    if (const int64_t size = file_size(path); size != digest.size)
      fail("[{}] found {} bytes, {} says {}", path, size, kManifestName, digest.size);
  }
}

void check_hashes(const std::string& folder, const Manifest& manifest, int part, int parts) {
  std::vector<std::pair<std::string, FileDigest>> files;
  int number = 0;
  for (const auto& file : manifest.files)
    if (number++ % parts == part) files.emplace_back(file);
  parallel_for(static_cast<int64_t>(files.size()), [&](int64_t i) {
    const auto& [name, digest] = files[static_cast<size_t>(i)];
    const std::string path = join_path(folder, name);
    if (const std::string hash = hash_file(path); hash != digest.hash)
      fail("[{}] found the hash {}, {} says {}", path, hash, kManifestName, digest.hash);
  });
}

}  // namespace temper::checkpoints
