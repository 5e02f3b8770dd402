#pragma once
#include <functional>

#include "checkpoints/hf_folder.h"

namespace temper::checkpoints {

// The parameters of a model whose weights have changed, in the form that a quantized folder has them in. amax
// are the largest magnitudes of the new weights; what is fused when it is served (the sources of a parameter,
// of one expert) shares its scale of the whole. Matrices of which nothing changed keep the folder's bytes,
// and so does what belongs to inputs (input_scale, pre_quant_scale, which columns are divided by before they
// are encoded).
class Requantized : public EncodedParameters {
 public:
  using Changed = std::function<bool(const WeightSpec& spec, const WeightSource& source)>;

  // `folder` must live as long. An Error "[folder] …" where it has plain values, or codes in a form that is
  // only read.
  Requantized(const ModelFolder& folder, const WeightTable& table, Changed changed);

  std::vector<TensorInfo> list(const WeightSpec& spec) const override;
  // Of float32 values.
  std::vector<Tensor> encode(const WeightSpec& spec, const Tensor& value) const override;

 private:
  struct Part;
  std::vector<Part> parts_of(const WeightSpec& spec) const;
  std::vector<std::string> kept_parts(const Part& part) const;
  Tensor to_encode(const Part& part, const Tensor& value) const;

  const ModelFolder& folder_;
  Changed changed_;
};

}  // namespace temper::checkpoints
