#pragma once
#include <map>
#include <string>

#include "layers/decoder.h"

// Norms whose results one quantized module alone reads, in exported folders: their weights are multiplied by
// the factors of its input's columns (quantizers::ColumnScales), which then are no tensor of their own, as
// readers of AWQ expect it.
namespace temper::models {

// By the norm's parameter, the quantizer of the weight whose factors it takes over: of attention's q|k|v and
// a gated MLP's gate|up that have blocks (as AWQ does; SmoothQuant's factors stay with their modules).
using FoldedNorms = std::map<std::string, const quantizers::Quantizer*>;
FoldedNorms folded_norms(const layers::Decoder& model);

// weight [columns], to which passes add `offset`, so that (weight + offset) is multiplied: float32, rounded
// once.
Tensor folded_norm(const Tensor& weight, const quantizers::Quantizer& quantizer, double offset);

}  // namespace temper::models
