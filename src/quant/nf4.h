#pragma once
#include <array>
#include <string_view>

#include "tensor/tensor.h"

// 4-bit NormalFloat (Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023): a code is one
// of 16 numbers from -1 to 1, which are quantiles of a normal distribution, times the largest magnitude of
// its block. With double quantization those magnitudes, less their mean, are 8-bit codes themselves, of
// numbers that are dense near 0 (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2021).
namespace temper::quant {

inline constexpr int64_t kNf4Block = 64;        // elements that share a magnitude, in the order of rows
inline constexpr int64_t kNf4ScaleBlock = 256;  // magnitudes that share a scale

using Nf4Numbers = std::array<float, 16>;
inline constexpr Nf4Numbers kNf4Numbers{-1,
                                        -0.696192801f,
                                        -0.525073051f,
                                        -0.394917488f,
                                        -0.284441382f,
                                        -0.18477343f,
                                        -0.0910500363f,
                                        0,
                                        0.0795802996f,
                                        0.160930201f,
                                        0.246112302f,
                                        0.337915242f,
                                        0.440709829f,
                                        0.562617004f,
                                        0.722956836f,
                                        1};

// The numbers that codes of magnitudes mean, in ascending order.
using Nf4ScaleNumbers = std::array<float, 256>;
const Nf4ScaleNumbers& nf4_scale_numbers();

// A matrix as it is stored. Blocks go on from one row to the next; the last one may be shorter.
struct Nf4 {
  Tensor codes;        // uint8 [rows, columns / 2]: the even column in the upper half of a byte
  Tensor scales;       // float32 [blocks]: magnitudes; with double quantization [blocks / 256, rounded up]
  Tensor scale_codes;  // uint8 [blocks], of magnitudes; undefined without double quantization
  float offset = 0;    // the mean of the magnitudes

  bool is_double() const { return scale_codes.defined(); }
};

// The magnitude of a block under double quantization; each operation is rounded by itself.
constexpr float nf4_magnitude(float number, float scale, float offset) { return number * scale + offset; }

// Values [rows, columns] of any floating-point dtype, compact, on the CPU. An Error "[name] …" where one is
// not finite and where there is an odd number of columns.
Nf4 encode_nf4(std::string_view name, const Tensor& values, bool double_quantization);

// The same codes with magnitudes as they are, or with double quantization. Magnitudes that are quantized
// become the float32 that they mean; others are quantized as encode_nf4() does. An Error "[name] …" where one
// is not finite.
Nf4 with_magnitudes(std::string_view name, Nf4 encoded, bool double_quantization);

}  // namespace temper::quant
