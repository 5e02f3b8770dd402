#pragma once
#include "foreign/matrix_writers.h"

namespace temper::foreign {

// Matrices in NF4 in blocks of 64 as bitsandbytes' folders have them (quantized_bitsandbytes.cpp), encoded by
// quant/nf4.h. `dtype`: what the folder names as that of the values ("bfloat16").
WritesMatrix nf4_writer(const QuantizedMatrix& matrix, bool double_quantization, const std::string& dtype);

}  // namespace temper::foreign
