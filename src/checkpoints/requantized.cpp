#include "checkpoints/requantized.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/matrix_writer.h"
#include "quant/groups.h"

namespace temper::checkpoints {

// A source of a parameter.
struct Requantized::Part {
  const WeightSpec* spec = nullptr;
  WeightSource source;
  int64_t row = 0;                                  // of the parameter
  std::optional<QuantizedMatrix> matrix;            // nothing: its values are plain
  std::shared_ptr<const MatrixWriter> writer = {};  // null: none is needed, or the form is only read
  bool encoded = false;                             // otherwise the folder's bytes stay
  int64_t shared = -1;  // equal numbers share a scale of the whole; -1: there is none
};

namespace {

constexpr std::string_view kBefore = ".pre_quant_scale";

float largest_in(const Tensor& values) { return *quant::amax_of(values, {1, 1}).data<float>(); }

}  // namespace

Requantized::Requantized(const ModelFolder& folder, const WeightTable& table, Changed changed)
    : folder_(folder), changed_(std::move(changed)) {
  if (folder.form() == nullptr || count_quantized(folder, table) == 0)
    fail("[{}] has plain values: leave out --quantized", folder.path());
  for (const WeightSpec& spec : table.specs())
    for (const Part& part : parts_of(spec))
      if (part.matrix && part.writer == nullptr)
        fail("[{}] '{}' is quantized as {}, which is read, but not written: leave out --quantized",
             folder.path(), part.source.name, folder.form()->name());
}

std::vector<Requantized::Part> Requantized::parts_of(const WeightSpec& spec) const {
  std::vector<Part> parts;
  const int64_t of_expert = spec.experts > 0 ? spec.shape[0] / spec.experts : 0;
  int64_t row = 0;
  for (const WeightSource& source :
       WeightTable::sources_in_files(spec, folder_.find(spec.stacked) != nullptr)) {
    Part part{&spec, source, row, quantized_matrix(folder_, spec, source)};
    if (part.matrix) {
      part.writer = folder_.form()->writer(folder_, *part.matrix);
      part.encoded = changed_(spec, source);
      if (part.writer && part.writer->shares_whole()) part.shared = of_expert > 0 ? row / of_expert : 0;
    }
    parts.push_back(std::move(part));
    row += source.rows;
  }
  // A new scale of the whole is that of all who share it.
  for (Part& part : parts)
    for (const Part& other : parts)
      if (part.shared >= 0 && other.shared == part.shared && other.encoded) part.encoded = true;
  const auto is_quantized = [](const Part& part) { return part.matrix.has_value(); };
  return std::any_of(parts.begin(), parts.end(), is_quantized) ? parts : std::vector<Part>{};
}

// The parts of a matrix that stay as they are: all except the codes and scales if it is encoded, or all of
// them.
std::vector<std::string> Requantized::kept_parts(const Part& part) const {
  std::vector<std::string> kept = folder_.form()->parts(folder_, *part.matrix);
  if (!part.encoded) return kept;
  const auto infos = part.writer->list();
  std::erase_if(kept, [&](const std::string& name) {
    return std::any_of(infos.begin(), infos.end(), [&](const TensorInfo& info) { return info.name == name; });
  });
  return kept;
}

std::vector<TensorInfo> Requantized::list(const WeightSpec& spec) const {
  std::vector<TensorInfo> all;
  const auto keep = [&](const std::string& name) {
    const Tensor held = folder_.tensor(name);
    all.push_back({name, held.shape(), held.dtype()});
  };
  for (const Part& part : parts_of(spec)) {
    if (!part.matrix) {
      all.push_back({part.source.name, shape_in_files(spec, part.source.rows),
                     folder_.tensor(part.source.name).dtype()});
      continue;
    }
    if (part.encoded)
      for (TensorInfo& info : part.writer->list()) all.push_back(std::move(info));
    for (const std::string& name : kept_parts(part)) keep(name);
  }
  return all;
}

// The rows, divided by what the columns are multiplied by when they are read.
Tensor Requantized::to_encode(const Part& part, const Tensor& value) const {
  const Tensor rows = value.narrow(0, part.row, part.source.rows).contiguous();
  const std::string before = part.matrix->part(kBefore);
  if (folder_.find(before) == nullptr) return rows;
  const Tensor factors = folder_.tensor(before).to(DType::kF32, MemoryTag::kWorkspace);
  const Tensor divided = rows.clone(MemoryTag::kWorkspace);
  const int64_t columns = rows.dim(1);
  for (int64_t i = 0; i < divided.numel(); ++i)
    divided.data<float>()[i] /= factors.data<float>()[i % columns];
  return divided;
}

std::vector<Tensor> Requantized::encode(const WeightSpec& spec, const Tensor& value) const {
  std::vector<Tensor> all;
  const std::vector<Part> parts = parts_of(spec);
  std::vector<float> largest(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].encoded && parts[i].shared >= 0) largest[i] = largest_in(to_encode(parts[i], value));
  for (const Part& part : parts) {
    if (!part.matrix) {
      const Tensor rows = value.narrow(0, part.row, part.source.rows);
      all.push_back(rows.to(folder_.tensor(part.source.name).dtype(), MemoryTag::kWorkspace)
                        .reshape(shape_in_files(spec, part.source.rows)));
      continue;
    }
    if (part.encoded) {
      float amax = 0;
      for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].shared == part.shared) amax = std::max(amax, largest[i]);
      for (Tensor& tensor : part.writer->encode(to_encode(part, value), amax))
        all.push_back(std::move(tensor));
    }
    for (const std::string& name : kept_parts(part)) all.push_back(folder_.tensor(name));
  }
  return all;
}

}  // namespace temper::checkpoints
