#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/threads/threads.h"
#include "foreign/bitsandbytes/nf4_writer.h"
#include "quant/nf4.h"

// Folders of bitsandbytes, as transformers saves them. Of the matrix X.weight [rows, columns] there are in 4
// bits
//   X.weight                [bytes, 1] U8, or another dtype of the same bytes (bnb_4bit_quant_storage): codes
//   in
//                           the order of rows, the even element in the upper half of a byte
//   X.weight.quant_map      F32 [16]: the number of each code
//   X.weight.absmax         F32 [blocks]: what the numbers of a block are multiplied by; blocks run over rows
//   X.weight.quant_state.bitsandbytes__nf4 (or __fp4)  U8: JSON with the block's size and the matrix's shape
// with double quantization absmax is U8, nested_quant_map[code] · nested_absmax[block] + nested_offset, where
//   X.weight.nested_quant_map F32 [256], X.weight.nested_absmax F32 [blocks / nested_blocksize, rounded up]
// and nested_offset is in the JSON; in 8 bits
//   X.weight        I8 [rows, columns], X.SCB F32 [rows]: values are code · SCB · (1 / 127), each rounded
//   X.weight_format U8 []: 0, codes in the order of rows
namespace temper::foreign {
namespace {

// What the JSON says.
struct State {
  std::string type, dtype;
  int64_t block = 0, nested_block = 0, rows = 0, columns = 0;
  float offset = 0;
};

int64_t size_in(const Json& json, std::string_view key) {
  const Json& size = json.at(key);
  if (!size.is_int() || size.as_int() < 1 || size.as_int() > (1 << 30))
    fail("'{}' is {}, expected a size", key, size.dump());
  return size.as_int();
}

State parse_state(std::string_view text, bool nested) {
  const Json json = Json::parse(text, "JSON");
  State state;
  state.type = json.at("quant_type").as_string();
  if (const Json* dtype = json.find("dtype"); dtype != nullptr && dtype->is_string())
    state.dtype = dtype->as_string();
  state.block = size_in(json, "blocksize");
  const Json::Array& shape = json.at("shape").as_array();
  if (shape.size() != 2) fail("'shape' is {}, expected that of a matrix", json.at("shape").dump());
  state.rows = shape[0].as_int();
  state.columns = shape[1].as_int();
  if (!nested) return state;
  state.nested_block = size_in(json, "nested_blocksize");
  state.offset = static_cast<float>(json.at("nested_offset").as_double());
  return state;
}

int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Bit by bit.
template <size_t kCount>
bool are(const Tensor& held, const std::array<float, kCount>& numbers) {
  return std::memcmp(held.raw(), numbers.data(), sizeof(numbers)) == 0;
}

// The tensors of a matrix in 4 bits.
struct FourBits {
  State state;
  Tensor codes, numbers, scales;           // as above
  Tensor scale_numbers, scales_of_scales;  // undefined without double quantization

  float scale(int64_t block) const {
    if (!scale_numbers.defined()) return scales.data<float>()[block];
    return quant::nf4_magnitude(scale_numbers.data<float>()[scales.data<uint8_t>()[block]],
                                scales_of_scales.data<float>()[block / state.nested_block], state.offset);
  }
};

class BitsandbytesForm : public QuantizedForm {
 public:
  BitsandbytesForm(const Json& config, const std::string& where) {
    const auto is_true = [&](std::string_view key) {
      const Json* found = config.is_object() ? config.find(key) : nullptr;
      return found != nullptr && *found == Json(true);
    };
    if (is_true("load_in_8bit") || is_true("_load_in_8bit")) {
      name_ = "bitsandbytes int8";
      return;
    }
    const Json* type = config.is_object() ? config.find("bnb_4bit_quant_type") : nullptr;
    if (type != nullptr && *type != Json("nf4") && *type != Json("fp4"))
      fail(
          "[{}] quantization_config: bnb_4bit_quant_type is {}, expected one of [nf4, fp4]; save the model "
          "in one of them",
          where, type->dump());
    name_ = "bitsandbytes " + (type == nullptr ? "fp4" : type->as_string());
    if (is_true("bnb_4bit_use_double_quant")) name_ += " with double quantization";
  }

  std::string name() const override { return name_; }

  std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    const TensorEntry* entry = folder.find(matrix.name);
    std::vector<std::string> found = parts_with(folder, matrix, kEndings);
    const bool codes = entry != nullptr && (entry->dtype == "U8" || entry->dtype == "I8");
    return codes || found.size() > (entry == nullptr ? 0u : 1u) ? found : std::vector<std::string>{};
  }

  std::vector<std::string> misfits(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    return in_8_bits(folder, matrix) ? misfits_in_8_bits(folder, matrix) : misfits_in_4_bits(folder, matrix);
  }

  Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
              int64_t count) const override {
    if (in_8_bits(folder, matrix)) return rows_in_8_bits(folder, matrix, first, count);
    const FourBits held = open(folder, matrix);
    const auto* const bytes = static_cast<const uint8_t*>(held.codes.raw());
    const float* const numbers = held.numbers.data<float>();
    Tensor read = Tensor::empty({count, matrix.columns}, DType::kF32, MemoryTag::kWorkspace);
    parallel_for(count, [&](int64_t row) {
      const int64_t begin = (first + row) * matrix.columns;
      float* const to = read.data<float>() + row * matrix.columns;
      for (int64_t i = 0; i < matrix.columns;) {
        const int64_t block = (begin + i) / held.state.block,
                      end = std::min(matrix.columns, (block + 1) * held.state.block - begin);
        const float scale = held.scale(block);
        for (; i < end; ++i) {
          const uint8_t byte = bytes[(begin + i) / 2];
          to[i] = numbers[(begin + i) % 2 == 0 ? byte >> 4 : byte & 15] * scale;
        }
      }
    });
    if (first + count == matrix.rows) folder.release(matrix.name, held.codes);
    return read;
  }

  std::optional<quant::Nf4> nf4(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (in_8_bits(folder, matrix) || matrix.columns % 2 != 0) return std::nullopt;
    const FourBits held = open(folder, matrix);
    const bool nested = held.scale_numbers.defined();
    if (held.state.block != quant::kNf4Block || !are(held.numbers, quant::kNf4Numbers) ||
        (nested && (held.state.nested_block != quant::kNf4ScaleBlock ||
                    !are(held.scale_numbers, quant::nf4_scale_numbers()))))
      return std::nullopt;
    const auto owner = std::make_shared<Tensor>(held.codes);
    const Shape shape{matrix.rows, matrix.columns / 2};
    quant::Nf4 kept{Tensor::borrow(owner->raw(), shape, DType::kU8, owner), held.scales, {}, 0};
    if (nested) kept = {kept.codes, held.scales_of_scales, held.scales, held.state.offset};
    return kept;
  }

  WritesMatrix writer(const ModelFolder& folder, const QuantizedMatrix& matrix) const override {
    if (folder.find(matrix.name)->dtype != "U8" || !nf4(folder, matrix)) return nullptr;
    return nf4_writer(matrix, is_nested(folder, matrix), state_of(folder, matrix).dtype);
  }

 private:
  static constexpr std::string_view kCodes = ".weight", kNumbers = ".weight.quant_map",
                                    kScales = ".weight.absmax", kScaleNumbers = ".weight.nested_quant_map",
                                    kScalesOfScales = ".weight.nested_absmax", kRowScales = ".SCB",
                                    kFormat = ".weight_format";
  static constexpr std::string_view kStates[] = {".weight.quant_state.bitsandbytes__nf4",
                                                 ".weight.quant_state.bitsandbytes__fp4"};
  static constexpr std::string_view kEndings[] = {
      kCodes, kNumbers, kScales, kScaleNumbers, kScalesOfScales, kStates[0], kStates[1], kRowScales, kFormat};
  static constexpr std::string_view kF32[] = {"F32"}, kU8[] = {"U8"}, kI8[] = {"I8"};

  static bool has(const ModelFolder& folder, const QuantizedMatrix& matrix, std::string_view ending) {
    return folder.find(matrix.part(ending)) != nullptr;
  }
  static bool in_8_bits(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    const TensorEntry* entry = folder.find(matrix.name);
    return has(folder, matrix, kRowScales) || (entry != nullptr && entry->dtype == "I8");
  }
  static bool is_nested(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    const TensorEntry* scales = folder.find(matrix.part(kScales));
    return has(folder, matrix, kScaleNumbers) || has(folder, matrix, kScalesOfScales) ||
           (scales != nullptr && scales->dtype == "U8");
  }

  static std::vector<std::string> misfits_in_8_bits(const ModelFolder& folder,
                                                    const QuantizedMatrix& matrix) {
    std::vector<std::string> found;
    const Shape codes[] = {{matrix.rows, matrix.columns}}, scales[] = {{matrix.rows}};
    if (auto misfit = misfit_of(folder, matrix.name, kI8, codes)) found.push_back(std::move(*misfit));
    if (auto misfit = misfit_of(folder, matrix.part(kRowScales), kF32, scales))
      found.push_back(std::move(*misfit));
    const std::string name = matrix.part(kFormat);
    if (!has(folder, matrix, kFormat)) return found;
    const Tensor format = folder.tensor(name);
    if (format.dtype() != DType::kU8 || format.numel() != 1 || *format.data<uint8_t>() != 0)
      found.push_back(fmt::format(
          "'{}' is not 0: the codes are in an order of one kind of GPU; save the model with a newer version",
          name));
    return found;
  }

  static std::vector<std::string> misfits_in_4_bits(const ModelFolder& folder,
                                                    const QuantizedMatrix& matrix) {
    MatrixCheck check(folder, matrix);
    std::vector<std::string>& found = check.found;
    const bool nested = is_nested(folder, matrix);
    const int64_t bytes = (matrix.rows * matrix.columns + 1) / 2;
    check_codes(folder, matrix, bytes, found);
    check(kNumbers, kF32, {{16}});
    if (nested) check(kScaleNumbers, kF32, {{256}});
    State state;
    try {
      state = state_of(folder, matrix);
    } catch (const Error& error) {
      found.emplace_back(error.what());
      return found;
    }
    if (state.rows != matrix.rows || state.columns != matrix.columns)
      found.push_back(fmt::format("'{}' is of a matrix [{}, {}], expected [{}, {}]", matrix.name, state.rows,
                                  state.columns, matrix.rows, matrix.columns));
    const int64_t blocks = parts_of(matrix.rows * matrix.columns, state.block);
    check(kScales, nested ? kU8 : kF32, {{blocks}});
    if (nested) check(kScalesOfScales, kF32, {{parts_of(blocks, state.nested_block)}});
    return found;
  }

  // Any dtype of as many bytes.
  static void check_codes(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t bytes,
                          std::vector<std::string>& found) {
    const TensorEntry* entry = folder.find(matrix.name);
    if (entry != nullptr && checkpoints::supported_dtype(*entry) && entry->shape.size() == 2 &&
        entry->shape[1] == 1 && entry->end - entry->begin == bytes)
      return;
    const Shape shape[] = {{bytes, 1}};
    if (auto misfit = misfit_of(folder, matrix.name, kU8, shape)) found.push_back(std::move(*misfit));
  }

  static State state_of(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    for (const std::string_view ending : kStates) {
      const std::string name = matrix.part(ending);
      if (folder.find(name) == nullptr) continue;
      const Tensor text = folder.tensor(name);
      if (text.dtype() != DType::kU8 || text.ndim() != 1)
        fail("'{}' is {} {}, expected U8 of one dimension", name, to_string(text.dtype()),
             to_string(text.shape()));
      try {
        return parse_state({static_cast<const char*>(text.raw()), static_cast<size_t>(text.numel())},
                           is_nested(folder, matrix));
      } catch (const Error& error) {
        fail("'{}': {}", name, error.what());
      }
    }
    fail("'{}' is missing, but the other parts of its matrix exist", matrix.part(kStates[0]));
  }

  static FourBits open(const ModelFolder& folder, const QuantizedMatrix& matrix) {
    FourBits held{state_of(folder, matrix),
                  folder.tensor(matrix.name),
                  folder.tensor(matrix.part(kNumbers)),
                  folder.tensor(matrix.part(kScales)),
                  {},
                  {}};
    if (!is_nested(folder, matrix)) return held;
    held.scale_numbers = folder.tensor(matrix.part(kScaleNumbers));
    held.scales_of_scales = folder.tensor(matrix.part(kScalesOfScales));
    return held;
  }

  static Tensor rows_in_8_bits(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
                               int64_t count) {
    CodedMatrix coded{folder.tensor(matrix.name), CodesIn::kBytes, quant::integer_element(8, false, false),
                      false, folder.tensor(matrix.part(kRowScales)).reshape({matrix.rows, 1})};
    coded.group_columns = matrix.columns;
    coded.of_columns = Tensor::empty({matrix.columns}, DType::kF32, MemoryTag::kWorkspace);
    std::fill_n(coded.of_columns.data<float>(), matrix.columns, 1 / 127.f);
    Tensor read = decoded_rows(coded, matrix.columns, first, count);
    release_rows(folder, matrix.name, coded, first, count);
    return read;
  }

  std::string name_;
};

std::shared_ptr<const QuantizedForm> bitsandbytes_form(const Json& config, const std::string& where) {
  return std::make_shared<BitsandbytesForm>(config, where);
}

}  // namespace

void register_bitsandbytes() { checkpoints::quantized_forms().add("bitsandbytes", {bitsandbytes_form}); }

}  // namespace temper::foreign
