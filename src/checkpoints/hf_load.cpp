#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/finite.h"
#include "checkpoints/files/names.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/kept_codes.h"
#include "checkpoints/mxfp4.h"

namespace temper::checkpoints {
namespace {

struct Misfits {
  std::vector<std::string> missing, unknown, unlike, both, apart;
  std::unordered_set<std::string> parts;  // of quantized matrices

  bool transposed = false;  // stacked tensors

  void check_source(const TensorEntry& entry, const WeightSpec& spec, int64_t rows, bool is_stacked) {
    Shape expected = shape_in_files(spec, rows);
    if (is_stacked) expected = stacked_in_files(spec, transposed && spec.transposes_stacked);
    const std::vector<int64_t> wanted(expected.begin(), expected.end());
    if (entry.shape != wanted)
      unlike.push_back(fmt::format("'{}' is [{}], expected {}", entry.name, fmt::join(entry.shape, ", "),
                                   to_string(expected)));
    else if (const auto dtype = supported_dtype(entry); !dtype || !is_float(*dtype))
      unlike.push_back(fmt::format("'{}' is {}, expected F32, BF16 or F16", entry.name, entry.dtype));
  }

  void check_quantized(const ModelFolder& folder, const WeightSpec& spec, const QuantizedMatrix& matrix) {
    if (spec.shape.ndim() == 2 && spec.experts_in_files == 0 && !spec.transposed &&
        matrix.name != spec.stacked) {
      for (std::string& misfit : folder.form()->misfits(folder, matrix)) unlike.push_back(std::move(misfit));
    } else {
      unlike.push_back(
          fmt::format("'{}' has codes, which are read only of matrices that files hold by "
                      "themselves and not transposed",
                      matrix.name));
    }
    for (std::string& part : folder.form()->parts(folder, matrix)) parts.insert(std::move(part));
  }

  // Adds the nearest name to the first unknown ones; names that are missing are the likeliest.
  void suggest(const WeightTable& table) {
    std::vector<std::string> candidates = missing;
    if (candidates.empty())
      for (const WeightSpec& spec : table.specs())
        for (const WeightSource& source : spec.sources) candidates.push_back(source.name);
    for (size_t i = 0; i < std::min<size_t>(unknown.size(), 10); ++i) {
      const std::string nearest = nearest_tensor(unknown[i], candidates);
      unknown[i] =
          fmt::format("'{}'{}", unknown[i], nearest.empty() ? "" : fmt::format(" (nearest: '{}')", nearest));
    }
  }
};

std::vector<WeightSource> sources_in(const ModelFolder& folder, const WeightSpec& spec) {
  return WeightTable::sources_in_files(spec, folder.find(spec.stacked) != nullptr);
}

bool is_new(const ModelFolder& folder, const WeightSpec& spec) {
  return spec.may_be_new && folder.find(spec.sources.front().name) == nullptr;
}

Misfits find_misfits(const ModelFolder& folder, const WeightTable& table) {
  Misfits misfits;
  const bool stacked = holds_stacked(folder, table);
  misfits.transposed = holds_transposed(folder, table);
  for (const WeightSpec& spec : table.specs()) {
    const std::string& first = spec.sources.front().name;
    if (folder.find(spec.stacked) == nullptr) {
      if (stacked && !spec.stacked.empty() && folder.find(first) != nullptr)
        misfits.apart.push_back(fmt::format("'{}'", first));
    } else {
      for (const WeightSource& source : spec.sources)
        if (folder.find(source.name) != nullptr)
          misfits.both.push_back(fmt::format("'{}' and '{}'", source.name, spec.stacked));
    }
    if (holds_mxfp4(folder, spec)) {
      if (folder.find(first) != nullptr) misfits.both.push_back(fmt::format("'{0}' and '{0}_blocks'", first));
      for (std::string& misfit : misfits_of_mxfp4(folder, spec)) misfits.unlike.push_back(std::move(misfit));
      continue;
    }
    for (const WeightSource& source : sources_in(folder, spec)) {
      const TensorEntry* entry = folder.find(source.name);
      if (const auto matrix = quantized_matrix(folder, spec, source))
        misfits.check_quantized(folder, spec, *matrix);
      else if (is_new(folder, spec))
        continue;
      else if (entry == nullptr)
        misfits.missing.push_back(source.name);
      else
        misfits.check_source(*entry, spec, source.rows, source.name == spec.stacked);
    }
  }
  for (const std::string& name : kept_names(folder, table))
    if (!supported_dtype(*folder.find(name)))
      misfits.unlike.push_back(
          fmt::format("'{}' is {}, which cannot be written back", name, folder.find(name)->dtype));
  for (const std::string& name : folder.names())
    if (table.find_source(name).spec == nullptr && !table.ignored().contains(name) && !table.keeps(name) &&
        find_mxfp4(table, name) == nullptr && !misfits.parts.contains(name))
      misfits.unknown.push_back(name);
  return misfits;
}

// Some rows at a time of [first, end), whose pages of the file are let go: a model is never in memory twice.
void hand_over(const ModelFolder& folder, const std::string& name, const Tensor& from, int64_t first,
               int64_t end, const std::function<void(int64_t row, const Tensor& rows)>& take) {
  constexpr int64_t kBytes = 16 << 20;
  if (!from.is_contiguous()) {
    check_finite(folder.tensor(name), 0, name, folder.path());
    return take(0, from);
  }
  const int64_t rows = from.dim(0),
                row_bytes = std::max<int64_t>(1, from.bytes() / std::max<int64_t>(rows, 1));
  const int64_t step = std::max<int64_t>(1, kBytes / row_bytes);
  for (int64_t row = first; row < end; row += step) {
    const Tensor part = from.narrow(0, row, std::min(step, end - row));
    check_finite(part, row, name, folder.path());
    take(row, part);
    folder.release(name, part);
  }
}

// The same of codes.
void hand_over_quantized(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first, int64_t end,
                         const std::function<void(int64_t row, const Tensor& rows)>& take) {
  constexpr int64_t kValues = 4 << 20;
  const int64_t step = std::max<int64_t>(2, kValues / std::max<int64_t>(1, matrix.columns) & ~1);
  for (int64_t row = first; row < end; row += step) {
    const Tensor part = folder.form()->rows(folder, matrix, row, std::min(step, end - row));
    check_finite(part, row, matrix.name, folder.path());
    take(row, part);
  }
}

// An expert at a time.
void hand_over_mxfp4(const ModelFolder& folder, const WeightSpec& spec, const Slice& own,
                     const std::function<void(int64_t row, const Tensor& rows)>& take) {
  const int64_t rows = spec.shape[0] / spec.experts_in_files, end = own.whole + own.count;
  for (int64_t row = own.whole; row < end;) {
    const int64_t in_expert = row % rows, count = std::min(rows - in_expert, end - row);
    take(row, read_mxfp4(folder, spec, row / rows).narrow(0, in_expert, count));
    row += count;
  }
}

}  // namespace

namespace {

// Rows [first, first + count) of a parameter, which are whole matrices, as far as a rank needs them: what it
// holds of them or, `whole`, all where it holds some.
std::vector<Slice> needed_rows(const Placement& placement, int64_t first, int64_t count, bool whole) {
  std::vector<Slice> slices = placement.own_rows(first, count);
  if (whole && !slices.empty()) slices = {{first, 0, count}};
  return slices;
}

}  // namespace

std::vector<std::string> kept_names(const ModelFolder& folder, const WeightTable& table) {
  std::vector<std::string> kept;
  for (const std::string& name : folder.names())
    if (table.keeps(name) && table.find_source(name).spec == nullptr) kept.push_back(name);
  return kept;
}

std::string kept_code(const ModelFolder& folder, const WeightTable& table) {
  if (folder.form() == nullptr) return "";
  for (const std::string& name : kept_names(folder, table)) {
    const QuantizedMatrix matrix{name.substr(0, name.rfind('.')) + ".weight"};
    if (!folder.form()->parts(folder, matrix).empty()) return name;
  }
  return "";
}

void check_kept(const ModelFolder& folder, const WeightTable& table) {
  if (const std::string code = kept_code(folder, table); !code.empty())
    fail(
        "[{}] '{}' belongs to codes of a tower that is quantized, which a saved model of numbers has no "
        "place for; train adapters, or the original model",
        folder.path(), code);
}

std::optional<QuantizedMatrix> quantized_matrix(const ModelFolder& folder, const WeightSpec& spec,
                                                const WeightSource& source) {
  if (folder.form() == nullptr) return std::nullopt;
  QuantizedMatrix matrix{source.name, source.rows, source.rows == 0 ? 0 : spec.shape.numel() / spec.shape[0]};
  if (folder.form()->parts(folder, matrix).empty()) return std::nullopt;
  return matrix;
}

int64_t count_quantized(const ModelFolder& folder, const WeightTable& table) {
  int64_t count = 0;
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : sources_in(folder, spec))
      count += quantized_matrix(folder, spec, source) ? 1 : 0;
  return count;
}

bool holds_stacked(const ModelFolder& folder, const WeightTable& table) {
  return std::any_of(table.specs().begin(), table.specs().end(),
                     [&](const WeightSpec& spec) { return folder.find(spec.stacked) != nullptr; });
}

bool holds_transposed(const ModelFolder& folder, const WeightTable& table) {
  return std::any_of(table.specs().begin(), table.specs().end(), [&](const WeightSpec& spec) {
    const TensorEntry* entry = spec.transposes_stacked ? folder.find(spec.stacked) : nullptr;
    if (entry == nullptr) return false;
    const Shape transposed = stacked_in_files(spec, true);
    return transposed != spec.stacked_shape &&
           entry->shape == std::vector<int64_t>(transposed.begin(), transposed.end());
  });
}

std::unordered_map<std::string, DType> read_dtypes(const ModelFolder& folder, const WeightTable& table) {
  std::unordered_map<std::string, DType> dtypes;
  for (const WeightSpec& spec : table.specs())
    if (spec.dtype && !spec.buffer && !quantized_matrix(folder, spec, spec.sources.front()))
      dtypes.emplace(spec.name, *supported_dtype(*folder.find(spec.sources.front().name)));
  return dtypes;
}

void check_weights(const ModelFolder& folder, const WeightTable& table) {
  Misfits misfits = find_misfits(folder, table);
  if (misfits.missing.empty() && misfits.unknown.empty() && misfits.unlike.empty() && misfits.both.empty() &&
      misfits.apart.empty())
    return;
  misfits.suggest(table);
  for (std::string& name : misfits.missing) name = folder.name_in_files(name);
  std::string message = fmt::format("[{}] the weights do not fit the model", folder.path());
  const auto add = [&](std::string_view title, const std::vector<std::string>& lines) {
    if (!lines.empty()) message += fmt::format("\n  {} {}: {}", lines.size(), title, list_some(lines));
  };
  add("missing", misfits.missing);
  add("unknown", misfits.unknown);
  add("of another shape or dtype", misfits.unlike);
  add("in two forms; keep one of them", misfits.both);
  add("of single experts, where others are stacked; write all in one form", misfits.apart);
  fail("{}\n{}", message, folder.remedy());
}

void load_rows(const ModelFolder& folder, const WeightTable& table, const Layout& layout,
               const TakeRows& take, const TakeNf4& take_nf4) {
  check_weights(folder, table);
  const bool transposed = holds_transposed(folder, table);
  for (size_t i = 0; i < table.specs().size(); ++i) {
    if (!layout[i].is_here()) continue;
    const WeightSpec& spec = table.specs()[i];
    const bool whole = take_nf4 && spec.quantize;  // matrices are encoded before they are divided
    int64_t first = 0;
    if (holds_mxfp4(folder, spec)) {
      for (const Slice& slice : needed_rows(layout[i], 0, spec.shape[0], whole))
        hand_over_mxfp4(folder, spec, slice, [&](int64_t row, const Tensor& rows) { take(spec, row, rows); });
      continue;
    }
    if (is_new(folder, spec)) {
      take(spec, 0, Tensor::zeros(spec.shape, DType::kF32, MemoryTag::kWorkspace));
      continue;
    }
    for (const WeightSource& source : sources_in(folder, spec)) {
      if (const auto matrix = quantized_matrix(folder, spec, source)) {
        const auto nf4 = take_nf4 ? folder.form()->nf4(folder, *matrix) : std::nullopt;
        if (nf4 && take_nf4(spec, first, *nf4)) {
          first += source.rows;
          continue;
        }
        for (const Slice& slice : needed_rows(layout[i], first, source.rows, whole))
          hand_over_quantized(folder, *matrix, slice.whole - first, slice.whole - first + slice.count,
                              [&](int64_t row, const Tensor& rows) { take(spec, first + row, rows); });
        first += source.rows;
        continue;
      }
      Tensor from = folder.tensor(source.name);
      if (source.name == spec.stacked) from = from_stacked(spec, from, transposed && spec.transposes_stacked);
      for (const Slice& slice : needed_rows(layout[i], first, source.rows, whole))
        hand_over(folder, source.name, from_file(spec, from), slice.whole - first,
                  slice.whole - first + slice.count,
                  [&](int64_t row, const Tensor& rows) { take(spec, first + row, rows); });
      first += source.rows;
    }
  }
}

void load_weights(const ModelFolder& folder, const WeightTable& table, const WeightTensors& destination) {
  const WeightSpec* current = nullptr;
  Tensor to;
  load_rows(folder, table, Layout(table), [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
    if (current != &spec) to = destination(spec);
    current = &spec;
    invariant(to.defined() && to.shape() == spec.shape && to.is_contiguous(),
              fmt::format("the destination of {} must be a contiguous {}", spec.name, to_string(spec.shape)));
    to.narrow(0, first, rows.dim(0)).copy_from(rows);
  });
}

}  // namespace temper::checkpoints
