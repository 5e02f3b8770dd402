#include "checkpoints/merge.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/threads/threads.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/finite.h"
#include "checkpoints/mxfp4.h"
#include "checkpoints/requantized.h"

namespace temper::checkpoints {
namespace {

constexpr const char* kModelOptConfig = "hf_quant_config.json";  // as nvidia-modelopt's folders have it

// out += scale · b a
struct Update {
  const float* b;  // [rows, rank]
  const float* a;  // [rank, in]
  float scale;
  int64_t rank, in;
};

// Rows [begin, end) of out [rows, in], each element's products summed in the order of k.
inline __attribute__((always_inline)) void add_rows(float* out, const Update& update, int64_t begin,
                                                    int64_t end) {
  const int64_t rank = update.rank, in = update.in;
  std::vector<float> sums(static_cast<size_t>(in));
  for (int64_t row = begin; row < end; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t k = 0; k < rank; ++k) {
      const float factor = update.b[row * rank + k];
      const float* line = update.a + k * in;
      float* sum = sums.data();
      for (int64_t i = 0; i < in; ++i) sum[i] = __builtin_fmaf(factor, line[i], sum[i]);
    }
    for (int64_t i = 0; i < in; ++i) {
      const float added = sums[static_cast<size_t>(i)] * update.scale;
      out[row * in + i] += added;
    }
  }
}

using AddRows = void(float* out, const Update&, int64_t begin, int64_t end);

void add_rows_anywhere(float* out, const Update& update, int64_t begin, int64_t end) {
  add_rows(out, update, begin, end);
}

#ifdef __x86_64__
// The product's sum is fused here, the update's must not be: fp-contract is off for it.
__attribute__((target("avx2,fma"), optimize("fp-contract=off"))) void add_rows_fused(float* out,
                                                                                     const Update& update,
                                                                                     int64_t begin,
                                                                                     int64_t end) {
  add_rows(out, update, begin, end);
}
AddRows* add_rows_here() { return __builtin_cpu_supports("fma") ? add_rows_fused : add_rows_anywhere; }
#else
AddRows* add_rows_here() { return add_rows_anywhere; }
#endif

Tensor floats(const Tensor& tensor) { return tensor.to(DType::kF32, MemoryTag::kWorkspace).contiguous(); }

// Both folders, and what the adapter does to each of the model's tensors.
class Merger {
 public:
  Merger(const std::string& adapter, const std::string& base, const WeightTable& table)
      : adapter_(ModelFolder::open_adapter(adapter, table)),
        base_(ModelFolder::open(base)),
        config_(read_adapter_config(adapter)),
        plan_(plan_lora_of(table, config_.lora, adapter_.names(), adapter)),
        adapter_table_(lora_table(table, plan_)) {
    check_agreement(config_, plan_, adapter);
    check_weights(base_, table);
    check_weights(adapter_, adapter_table_);
    check_tied(table, adapter);
    for (const std::string& name : adapter_.names()) check_finite(adapter_.tensor(name), 0, name, adapter);
    transposed_ = holds_transposed(base_, table);
  }

  // A parameter of the model, as its files have it, with the adapter in it.
  Tensor parameter(const WeightSpec& spec) const {
    if (holds_mxfp4(base_, spec)) {
      const Tensor read = Tensor::empty(spec.shape, DType::kBF16, MemoryTag::kWorkspace);
      const int64_t experts = spec.experts_in_files, rows = spec.shape[0] / experts;
      for (int64_t e = 0; e < experts; ++e)
        read.narrow(0, e * rows, rows).copy_from(read_mxfp4(base_, spec, e));
      return read;
    }
    const auto sources = in_base(spec);
    const bool has_codes = std::any_of(sources.begin(), sources.end(), [&](const WeightSource& source) {
      return quantized_matrix(base_, spec, source).has_value();
    });
    const DType dtype = has_codes ? DType::kF32 : base_.tensor(sources.front().name).dtype();
    const Tensor merged = Tensor::empty(spec.shape, dtype, MemoryTag::kWorkspace);
    int64_t row = 0;
    for (const WeightSource& source : sources) {
      const Tensor rows = merged.narrow(0, row, source.rows);
      const Tensor own = tensor(spec, source);
      if (spec.experts_in_files > 0)
        rows.copy_from(from_file(spec, own));
      else
        rows.copy_from(source.name == spec.stacked
                           ? from_stacked(spec, own, transposed_ && spec.transposes_stacked)
                           : own);
      row += source.rows;
    }
    for (const LoraTarget& target : plan_.targets)
      if (target.experts > 0 && target.spec->name == spec.name) update_experts(merged, target);
    check_sums(spec, merged.to(has_codes ? dtype_of_codes_ : dtype, MemoryTag::kWorkspace));
    return merged;
  }

  // Of parameters whose files have codes, and are written as numbers.
  void write_codes_as(DType dtype) { dtype_of_codes_ = dtype; }

  const ModelFolder& base() const { return base_; }

  // Whether the adapter changes any of a source's values.
  bool changes(const WeightSpec& spec, const WeightSource& source) const {
    for (const LoraSaved& saved : plan_.saved)
      if (saved.source == source.name) return true;
    for (const LoraTarget& target : plan_.targets)
      if (target.experts > 0 ? target.spec->name == spec.name : target.module + ".weight" == source.name)
        return true;
    return false;
  }

  // What all of the base's tensors have; nothing where they differ.
  std::optional<DType> dtype(const WeightTable& table) const {
    std::set<DType> found;
    for (const WeightSpec& spec : table.specs()) {
      if (holds_mxfp4(base_, spec)) {
        found.insert(DType::kBF16);
        continue;
      }
      for (const WeightSource& source : in_base(spec))
        if (!spec.dtype && !quantized_matrix(base_, spec, source))
          found.insert(*supported_dtype(*base_.find(source.name)));
    }
    return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
  }

 private:
  std::vector<WeightSource> in_base(const WeightSpec& spec) const {
    return WeightTable::sources_in_files(spec, base_.find(spec.stacked) != nullptr);
  }

  // Finite numbers may have a sum that is not.
  void check_sums(const WeightSpec& spec, const Tensor& written) const {
    int64_t row = 0;
    for (const WeightSource& source : in_base(spec)) {
      check_finite(
          written.narrow(0, row, source.rows), 0, source.name, adapter_.path(),
          fmt::format("with the adapter in it the weight is larger than {} can hold: use the adapter "
                      "unmerged (--adapter), or one with a smaller scale (lora_alpha)",
                      to_string(written.dtype())));
      row += source.rows;
    }
  }

  void check_tied(const WeightTable& table, const std::string& adapter) const {
    const auto is_head = [](const WeightSpec& spec) { return spec.lora == LoraRole::kHead; };
    if (std::any_of(table.specs().begin(), table.specs().end(), is_head)) return;
    const auto refuse = [&](const WeightSpec* spec) {
      const bool embedding = spec->lora == LoraRole::kEmbedding;
      if (embedding || spec->lora == LoraRole::kHead)
        fail(
            "[{}] the adapter changes the {} alone, but the model's {} is the same tensor: it cannot be "
            "merged; "
            "use it unmerged (--adapter)",
            adapter, embedding ? "embedding" : "head", embedding ? "head" : "embedding");
    };
    for (const LoraTarget& target : plan_.targets) refuse(target.spec);
    for (const LoraSaved& saved : plan_.saved) refuse(table.find_target(saved.source).spec);
  }

  Tensor tensor(const WeightSpec& spec, const WeightSource& source) const {
    const std::string& name = source.name;
    for (const LoraSaved& saved : plan_.saved)
      if (saved.source == name) return adapter_.tensor(saved.file);
    const auto matrix = quantized_matrix(base_, spec, source);
    const Tensor own = matrix ? base_.form()->rows(base_, *matrix, 0, matrix->rows) : base_.tensor(name);
    check_finite(own, 0, name, base_.path());
    for (const LoraTarget& target : plan_.targets)
      if (target.experts == 0 && target.module + ".weight" == name) return updated(own, target);
    return own;
  }

  Tensor updated(const Tensor& own, const LoraTarget& target) const {
    const Tensor sum = own.to(DType::kF32, MemoryTag::kWorkspace).clone(MemoryTag::kWorkspace);
    const LoraFileNames files = lora_file_names(target).front();
    Tensor a = floats(adapter_.tensor(files.a)), b = floats(adapter_.tensor(files.b));
    if (target.spec->lora == LoraRole::kEmbedding) {
      std::swap(a, b);  // (B A)ᵀ = Aᵀ Bᵀ
      a = a.transpose(0, 1).contiguous();
      b = b.transpose(0, 1).contiguous();
    }
    add_low_rank(sum, b, a, static_cast<float>(target.scale));
    return sum;
  }

  // Each expert's rows, rounded once.
  void update_experts(const Tensor& matrices, const LoraTarget& target) const {
    const Tensor a = floats(adapter_parameter(lora_a_name(*target.spec))),
                 b = floats(adapter_parameter(lora_b_name(target)));
    const int64_t rows = matrices.dim(0) / target.experts, ranks = a.dim(0) / target.experts;
    int64_t first = 0;  // of the target's rows of an expert's A
    for (const LoraTarget& other : plan_.targets)
      if (other.spec == target.spec && other.row < target.row) first += other.rank;
    for (int64_t e = 0; e < target.experts; ++e) {
      const Tensor own = matrices.narrow(0, e * rows + target.row, target.rows);
      const Tensor sum = own.to(DType::kF32, MemoryTag::kWorkspace).clone(MemoryTag::kWorkspace);
      add_low_rank(sum, b.narrow(0, e * target.rows, target.rows),
                   a.narrow(0, e * ranks + first, target.rank), static_cast<float>(target.scale));
      own.copy_from(sum);
    }
  }

  Tensor adapter_parameter(const std::string& name) const {
    const WeightSpec& spec = *adapter_table_.find(name);
    const Tensor whole =
        Tensor::empty(spec.shape, adapter_.tensor(spec.sources.front().name).dtype(), MemoryTag::kWorkspace);
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      whole.narrow(0, row, source.rows).copy_from(from_file(spec, adapter_.tensor(source.name)));
      row += source.rows;
    }
    return whole;
  }

  ModelFolder adapter_, base_;
  AdapterConfig config_;
  LoraPlan plan_;
  WeightTable adapter_table_;
  bool transposed_ = false;  // stacked tensors of the base
  DType dtype_of_codes_ = DType::kF32;
};

}  // namespace

void add_low_rank(const Tensor& weight, const Tensor& b, const Tensor& a, float scale) {
  const int64_t out = weight.dim(0), in = weight.dim(1), rank = a.dim(0);
  invariant(b.shape() == Shape({out, rank}) && a.dim(1) == in, "a low-rank update fits its weight");
  const Update update{b.data<float>(), a.data<float>(), scale, rank, in};
  parallel_ranges(out, 16, [&](int64_t begin, int64_t end) {
    add_rows_here()(weight.data<float>(), update, begin, end);
  });
}

void merge_adapter(const std::string& adapter, const std::string& base, const Json& config,
                   const WeightTable& table, const std::string& output, int64_t max_shard_bytes,
                   MergedForm form) {
  Merger merger(adapter, base, table);
  WeightTable written = table;
  written.set_stacked(holds_stacked(merger.base(), table));
  written.set_stacked_transposed(holds_transposed(merger.base(), table));
  if (merger.base().text_names()) written.set_text_names(merger.base().text_names());
  written.set_read_dtypes(read_dtypes(merger.base(), table));
  SaveOptions options;
  options.dtype = merger.dtype(table);
  options.max_shard_bytes = max_shard_bytes;
  options.original = base;
  options.kept = &merger.base();
  if (form == MergedForm::kPlain) merger.write_codes_as(options.dtype.value_or(DType::kF32));
  std::optional<Requantized> encoded;
  if (form == MergedForm::kAsBase) {
    options.encoded = &encoded.emplace(
        merger.base(), written,
        [&](const WeightSpec& spec, const WeightSource& source) { return merger.changes(spec, source); });
    const std::string extra = join_path(base, kModelOptConfig);
    if (exists(extra)) options.json_files.emplace_back(kModelOptConfig, Json::parse_file(extra));
  }
  save_model(
      output, written, [&](const WeightSpec& spec) { return merger.parameter(spec); }, config, options);
}

}  // namespace temper::checkpoints
