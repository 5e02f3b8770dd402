#include "checkpoints/adapter_folder.h"

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/staged_folder.h"

namespace temper::checkpoints {
namespace {

// Whole folders are replaced: refuse those that do not look like an adapter.
void check_target(const std::string& path) {
  if (!is_directory(path) || exists(join_path(path, kAdapterConfig)) || list_directory(path).empty()) return;
  fail("[{}] is a folder without {}, expected an adapter's folder or none; choose another name", path,
       kAdapterConfig);
}

struct Piece {
  const WeightSpec* spec;
  int64_t row, rows;
};

}  // namespace

void save_adapter(const std::string& path, const WeightTable& table, const WeightTensors& source,
                  const Json& config) {
  check_target(path);
  std::vector<TensorInfo> infos;
  std::vector<Piece> pieces;
  for (const WeightSpec& spec : table.specs()) {
    int64_t row = 0;
    for (const WeightSource& part : spec.sources) {
      infos.push_back({part.name, shape_in_files(spec, part.rows), source(spec).dtype()});
      pieces.push_back({&spec, row, part.rows});
      row += part.rows;
    }
  }
  StagedFolder folder(path);
  require_free_disk(folder.path(), safetensors_bytes(infos));
  SafetensorsWriter writer(folder / "adapter_model.safetensors", std::move(infos));
  for (const Piece& piece : pieces) {
    const Tensor rows = source(*piece.spec).narrow(0, piece.row, piece.rows).on({}, MemoryTag::kWorkspace);
    writer.add(to_file(*piece.spec, rows));
  }
  writer.close();
  FileWriter text(folder / kAdapterConfig);
  text.write(config.dump(2, true) + "\n");
  text.close();
  folder.commit();
}

std::string find_adapter(const std::string& path) {
  const auto is_adapter = [](const std::string& folder) { return exists(join_path(folder, kAdapterConfig)); };
  if (is_adapter(path) || !is_directory(path)) return path;
  if (const std::string inner = join_path(path, "adapter"); is_adapter(inner)) return inner;
  std::vector<std::string> found;
  const std::string all = join_path(path, "adapters");
  if (is_directory(all))
    for (const std::string& name : list_directory(all))
      if (const std::string inner = join_path(join_path(all, name), "adapter"); is_adapter(inner))
        found.push_back(inner);
  if (found.size() > 1) fail("[{}] is a run with several adapters; name one: {}", path, join(found));
  return found.empty() ? path : found.front();
}

}  // namespace temper::checkpoints
