#include "quant/packing.h"

#include "base/error.h"

namespace temper::quant {
namespace {

Tensor with_columns(const Tensor& like, int64_t columns) {
  Shape shape = like.shape();
  shape[shape.ndim() - 1] = columns;
  return Tensor::empty(shape, DType::kU8, MemoryTag::kData);
}

Tensor with_rows(const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[shape.ndim() - 2] = rows;
  return Tensor::empty(shape, DType::kU8, MemoryTag::kData);
}

}  // namespace

Tensor packed_columns(std::string_view name, const Tensor& codes, int bits) {
  const Packing packing = packing_of(bits);
  const int64_t columns = codes.dim(-1);
  if (columns % packing.codes != 0)
    fail("[{}] has {} columns, codes of {} bits need a multiple of {}", name, columns, bits, packing.codes);
  if (packing.codes == 1) return codes;
  const Tensor packed = with_columns(codes, columns / packing.codes * packing.bytes);
  const uint8_t* from = codes.data<uint8_t>();
  uint8_t* to = packed.data<uint8_t>();
  for (int64_t i = 0; i < codes.numel(); i += packing.codes, from += packing.codes, to += packing.bytes) {
    uint32_t all = 0;
    for (int64_t c = 0; c < packing.codes; ++c) all |= static_cast<uint32_t>(from[c]) << (c * bits);
    for (int64_t b = 0; b < packing.bytes; ++b) to[b] = static_cast<uint8_t>(all >> (8 * b));
  }
  return packed;
}

Tensor unpacked_columns(const Tensor& packed, int bits) {
  const Packing packing = packing_of(bits);
  if (packing.codes == 1) return packed;
  const Tensor codes = with_columns(packed, packed.dim(-1) / packing.bytes * packing.codes);
  const uint8_t* from = packed.data<uint8_t>();
  uint8_t* to = codes.data<uint8_t>();
  for (int64_t i = 0; i < codes.numel(); i += packing.codes, from += packing.bytes, to += packing.codes) {
    uint32_t all = 0;
    for (int64_t b = 0; b < packing.bytes; ++b) all |= static_cast<uint32_t>(from[b]) << (8 * b);
    for (int64_t c = 0; c < packing.codes; ++c)
      to[c] = static_cast<uint8_t>((all >> (c * bits)) & ((1u << bits) - 1));
  }
  return codes;
}

Tensor packed_rows(std::string_view name, const Tensor& codes) {
  const int64_t rows = codes.dim(-2), columns = codes.dim(-1);
  if (rows % 2 != 0)
    fail("[{}] has {} rows, codes of 4 bits in pairs of rows need an even number", name, rows);
  const Tensor packed = with_rows(codes, rows / 2);
  const uint8_t* from = codes.data<uint8_t>();
  uint8_t* to = packed.data<uint8_t>();
  for (int64_t i = 0; i < packed.numel(); ++i) {
    const int64_t even = i / columns * 2 * columns + i % columns;
    to[i] = static_cast<uint8_t>(from[even] | (from[even + columns] << 4));
  }
  return packed;
}

Tensor unpacked_rows(const Tensor& packed) {
  const int64_t columns = packed.dim(-1);
  const Tensor codes = with_rows(packed, 2 * packed.dim(-2));
  const uint8_t* from = packed.data<uint8_t>();
  uint8_t* to = codes.data<uint8_t>();
  for (int64_t i = 0; i < packed.numel(); ++i) {
    const int64_t even = i / columns * 2 * columns + i % columns;
    to[even] = from[i] & 15;
    to[even + columns] = from[i] >> 4;
  }
  return codes;
}

}  // namespace temper::quant
