#pragma once
#include <string_view>

#include "tensor/tensor.h"

// Codes narrower than a byte, as files hold them. All tensors are uint8, compact and on the CPU.
namespace temper::quant {

// The fewest codes that fill whole bytes. Codes of 3, 5 and 7 bits have a byte each.
struct Packing {
  int64_t codes = 1, bytes = 1;
};
constexpr Packing packing_of(int bits) {
  return bits == 2 ? Packing{4, 1} : bits == 4 ? Packing{2, 1} : bits == 6 ? Packing{4, 3} : Packing{};
}

// codes [..., columns] to [..., columns / codes · bytes]: those of a row follow one another, each above the
// one before it, from the lowest bit of the first byte on. So files have NVFP4 and MXFP4: the even column in
// the lower half of a byte. An Error "[name] …" where the columns do not fill bytes.
Tensor packed_columns(std::string_view name, const Tensor& codes, int bits);
Tensor unpacked_columns(const Tensor& packed, int bits);

// Codes of 4 bits [..., rows, columns] to [..., rows / 2, columns]: the even row in the lower half of a byte,
// as nvidia-modelopt writes INT4 weights. An Error "[name] …" where there is an odd number of rows.
Tensor packed_rows(std::string_view name, const Tensor& codes);
Tensor unpacked_rows(const Tensor& packed);

}  // namespace temper::quant
