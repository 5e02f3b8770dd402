#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/names.h"
#include "checkpoints/files/other_files.h"
#include "checkpoints/files/references.h"
#include "checkpoints/files/staged_folder.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/kept_codes.h"

namespace temper::checkpoints {
namespace {

constexpr const char* kNamedTemplates = "additional_chat_templates";

// What other libraries read of the same tokenizer.
constexpr const char* kOtherTokenizerFiles[] = {"vocab.txt", "spiece.model", "sentencepiece.bpe.model",
                                                "tekken.json"};

// One tensor of the files: some rows of a parameter, or a tensor that is kept as it is.
struct Piece {
  TensorInfo info;
  const WeightSpec* spec = nullptr;  // null: kept
  int64_t row = 0, rows = 0;
  int encoded = -1;  // its place among what EncodedParameters lists; -1: rows of the value
  bool stacked = false, transposed = false;  // a stacked tensor; of transposes
  int64_t bytes() const { return info.shape.numel() * size_of(info.dtype); }
};
using Shard = std::vector<Piece>;

int64_t bytes_of(const Shard& shard) {
  int64_t bytes = 0;
  for (const Piece& piece : shard) bytes += piece.bytes();
  return bytes;
}

Tensor checked_source(const WeightSpec& spec, const WeightTensors& source) {
  Tensor tensor = source(spec);
  invariant(tensor.defined() && tensor.shape() == spec.shape,
            fmt::format("the tensor to save for {} must be {}", spec.name, to_string(spec.shape)));
  return tensor;
}

std::vector<Piece> list_pieces(const WeightTable& table, const WeightTensors& source,
                               const SaveOptions& options) {
  std::vector<Piece> pieces;
  const auto in_files = [&](TensorInfo info) {
    info.name = table.name_in_files(info.name);
    return info;
  };
  for (const WeightSpec& spec : table.specs()) {
    const auto encoded = options.encoded == nullptr ? std::vector<TensorInfo>() : options.encoded->list(spec);
    for (size_t i = 0; i < encoded.size(); ++i)
      pieces.push_back({in_files(encoded[i]), &spec, 0, 0, static_cast<int>(i)});
    if (!encoded.empty()) continue;
    const std::optional<DType> asked = table.dtype_in_files(spec, options.dtype);
    const DType dtype = asked ? *asked : checked_source(spec, source).dtype();
    int64_t row = 0;
    for (const WeightSource& part : table.sources_in_files(spec)) {
      Shape shape = shape_in_files(spec, part.rows);
      const bool stacked = part.name == spec.stacked, transposed = stacked && table.stacked_transposed(spec);
      if (stacked) shape = stacked_in_files(spec, transposed);
      pieces.push_back({in_files({part.name, shape, dtype}), &spec, row, part.rows, -1, stacked, transposed});
      row += part.rows;
    }
  }
  if (options.kept != nullptr && options.encoded == nullptr) check_kept(*options.kept, table);
  if (options.kept != nullptr)
    for (const std::string& name : kept_names(*options.kept, table)) {
      const Tensor tensor = options.kept->tensor(name);
      pieces.push_back({{name, tensor.shape(), tensor.dtype()}});
    }
  // Wider dtypes first, so that no tensor of a file is misaligned.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return size_of(a.info.dtype) > size_of(b.info.dtype);
  });
  return pieces;
}

// Cuts in order; a piece larger than the limit gets a file of its own.
std::vector<Shard> cut_into_shards(const std::vector<Piece>& pieces, int64_t max_bytes) {
  std::vector<Shard> shards(1);
  int64_t filled = 0;
  for (const Piece& piece : pieces) {
    if (!shards.back().empty() && filled + piece.bytes() > max_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += piece.bytes();
    shards.back().push_back(piece);
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

// What files hold of one parameter at a time.
class Written {
 public:
  Written(const WeightTensors& source, const SaveOptions& options) : source_(source), options_(options) {}

  Tensor operator()(const Piece& piece) {
    if (piece.spec == nullptr) return options_.kept->tensor(piece.info.name);
    if (piece.spec != held_) {
      value_ = {};  // before the next one is made
      parts_.clear();
      value_ = checked_source(*piece.spec, source_).on({}, MemoryTag::kWorkspace);
      held_ = piece.spec;
      if (piece.encoded >= 0)
        parts_ = options_.encoded->encode(*piece.spec, value_);
      else
        value_ = value_.to(piece.info.dtype, MemoryTag::kWorkspace);
    }
    if (piece.encoded >= 0) return parts_.at(static_cast<size_t>(piece.encoded));
    if (piece.stacked) return to_stacked(*piece.spec, value_, piece.transposed);
    return to_file(*piece.spec, value_.narrow(0, piece.row, piece.rows));
  }

 private:
  const WeightTensors& source_;
  const SaveOptions& options_;
  const WeightSpec* held_ = nullptr;
  Tensor value_;  // of held_, spec.shape
  std::vector<Tensor> parts_;
};

void write_weights(const StagedFolder& folder, const std::vector<Shard>& shards, const WeightTensors& source,
                   const SaveOptions& options) {
  Written written(source, options);
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorInfo> infos;
    for (const Piece& piece : shards[i]) infos.push_back(piece.info);
    SafetensorsWriter writer(folder / shard_name(i, shards.size()), std::move(infos));
    for (const Piece& piece : shards[i]) writer.add(written(piece));
    writer.close();
  }
}

void write_synced(const std::string& path, std::string_view text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close();
}

void write_index(const StagedFolder& folder, const std::vector<Shard>& shards) {
  int64_t bytes = 0, parameters = 0;
  std::map<std::string, std::string> files;
  for (size_t i = 0; i < shards.size(); ++i) {
    bytes += bytes_of(shards[i]);
    for (const Piece& piece : shards[i]) {
      parameters += piece.info.shape.numel();
      files.emplace(piece.info.name, shard_name(i, shards.size()));
    }
  }
  const Json::Object weight_map(files.begin(), files.end());
  const Json metadata(Json::Object{{"total_parameters", parameters}, {"total_size", bytes}});
  const Json index(Json::Object{{"metadata", metadata}, {"weight_map", weight_map}});
  write_synced(folder / "model.safetensors.index.json", index.dump(2, true) + "\n");
}

Json config_with_dtype(Json config, std::optional<DType> dtype) {
  if (!config.is_object()) fail("[config.json] found {}, expected an object", config.kind_name());
  if (!dtype) return config;
  for (auto& [key, value] : config.as_object()) {
    if (key == "dtype" || key == "torch_dtype")
      value = Json(to_string(*dtype));
    else if (key == "text_config" && value.is_object())
      value = config_with_dtype(value, dtype);
  }
  return config;
}

// Whatever the files were that were read, those that are written hold numbers, unless they are encoded.
Json without_quantization(Json config) {
  if (config.is_object())
    std::erase_if(config.as_object(), [](const auto& entry) {
      return entry.first == "quantization_config" && entry.second.is_object();
    });
  return config;
}

// The named chat templates, which are in a folder of their own.
void copy_named_templates(const StagedFolder& folder, const std::string& original) {
  const std::string from = join_path(original, kNamedTemplates);
  if (original.empty() || !is_directory(from)) return;
  make_directories(folder / kNamedTemplates);
  for (const std::string& name : list_directory(from))
    if (name.ends_with(".jinja"))
      write_synced(join_path(folder / kNamedTemplates, name), read_file(join_path(from, name)));
  sync_directory(folder / kNamedTemplates);
}

// Byte for byte, unless it names files that are not there.
void copy_file(const StagedFolder& folder, const std::string& from, References& references) {
  const std::string name = file_name(from);
  const MappedFile file(from);
  if (name.ends_with("_config.json")) {
    const Json before = Json::parse(file.text(), from), after = references.resolve(name, before);
    if (before != after) return write_synced(folder / name, after.dump(2, true) + "\n");
  }
  write_synced(folder / name, file.text());
}

// The terms of use, and what other programs need.
void copy_other_files(const StagedFolder& folder, const std::string& original, References& references) {
  constexpr int64_t kMostBytes = 1 << 20;
  std::error_code ignored;  // of one that cannot be looked at
  if (!is_directory(original)) return;
  for (const std::string& name : list_directory(original)) {
    const std::string from = join_path(original, name);
    if (std::ranges::find(kOtherTokenizerFiles, name) != std::end(kOtherTokenizerFiles) ||
        (is_of_license(name) && std::filesystem::is_regular_file(from, ignored) &&
         file_size(from) <= kMostBytes))
      copy_file(folder, from, references);
  }
}

void copy_extra_files(const StagedFolder& folder, const SaveOptions& options, References& references) {
  if (options.original.empty()) return;
  for (const std::string& name : options.extra_files) {
    invariant(is_plain_name(name), fmt::format("the extra file '{}' must be a plain name", name));
    if (const std::string from = join_path(options.original, name); exists(from))
      copy_file(folder, from, references);
  }
  copy_named_templates(folder, options.original);
  copy_other_files(folder, options.original, references);
  for (const std::string& name : references.files())
    if (!exists(folder / name)) copy_file(folder, join_path(options.original, name), references);
  const std::vector<std::string> saved = list_directory(folder.path());
  report_left_out(options.original, {saved.begin(), saved.end()});
}

// Whole folders are replaced: refuse those that do not look like a model.
void check_target(const std::string& path) {
  if (!is_directory(path) || exists(join_path(path, "config.json")) || list_directory(path).empty()) return;
  fail("[{}] is a folder without config.json, expected a model folder or none; choose another name", path);
}

}  // namespace

void save_model(const std::string& path, const WeightTable& table, const WeightTensors& source,
                const Json& config, const SaveOptions& options) {
  if (options.max_shard_bytes <= 0)
    fail("max_shard_bytes is {}, expected at least 1", options.max_shard_bytes);
  if (options.dtype && !is_float(*options.dtype))
    fail("cannot save a model as {}; expected float32, bfloat16 or float16", to_string(*options.dtype));
  check_target(path);
  References references(options.original);
  const Json written_config = references.resolve(
      "config.json",
      config_with_dtype(options.encoded == nullptr ? without_quantization(config) : config, options.dtype));
  const std::vector<Shard> shards =
      cut_into_shards(list_pieces(table, source, options), options.max_shard_bytes);
  StagedFolder folder(path);
  int64_t bytes = 0;
  for (const Shard& shard : shards) bytes += bytes_of(shard);
  require_free_disk(folder.path(), bytes);
  write_weights(folder, shards, source, options);
  if (shards.size() > 1) write_index(folder, shards);
  write_synced(folder / "config.json", written_config.dump(2, true) + "\n");
  for (const auto& [name, value] : options.json_files)
    write_synced(folder / name, value.dump(2, true) + "\n");
  copy_extra_files(folder, options, references);
  folder.commit();
}

}  // namespace temper::checkpoints
