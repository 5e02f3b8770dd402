#include "foreign/modelopt_parts.h"

#include <cmath>

#include "base/error.h"
#include "quant/packing.h"

namespace temper::foreign {
namespace {

void check_fits(const ModeloptChoice& form, const std::string& module) {
  const ModeloptAlgorithm& how = *form.algorithm;
  const quant::Format& format = *written_format(how);
  if (format.has_blocks() && form.block != format.block)
    fail("[{}] is in blocks of {} in its folder, but {} is written in blocks of {}", module, form.block,
         how.name, format.block);
}

// Of amax, which rows, tiles or blocks of columns have.
Shape amax_shape(const ModeloptChoice& form, const Shape& values) {
  if (form.algorithm->groups == ScaleGroups::kRows) return {values[0], 1};
  const int64_t rows = form.algorithm->groups == ScaleGroups::kTiles ? form.block : 1;
  return {values[0] / rows, values[1] / form.block};
}

// The last tiles of a row or column may be smaller in files: zeros change neither amax nor codes.
Tensor padded_tokens(const Tensor& values, int64_t tile) {
  const int64_t rows = (values.dim(0) + tile - 1) / tile * tile,
                columns = (values.dim(1) + tile - 1) / tile * tile;
  if (values.shape() == Shape{rows, columns}) return values;
  const Tensor all = Tensor::zeros({rows, columns}, DType::kF32, MemoryTag::kWorkspace);
  all.narrow(0, 0, values.dim(0)).narrow(1, 0, values.dim(1)).copy_from(values);
  return all;
}

}  // namespace

DType dtype_in_files(std::string_view name) {
  return name == "F8_E4M3" ? DType::kF8E4M3
         : name == "I8"    ? DType::kI8
         : name == "U8"    ? DType::kU8
                           : DType::kF32;
}

Tensor seen_as(const Tensor& bytes, DType dtype) {
  const auto owner = std::make_shared<Tensor>(bytes);
  return Tensor::borrow(owner->raw(), bytes.shape(), dtype, owner);
}

float modelopt_scale(const quant::Format& format, float amax) {
  if (format.has_blocks()) return quant::global_scale(amax);
  if (format.element.integer) return amax <= quant::kLeastAmax ? 1.f : amax / format.element.largest;
  return quant::factors_of(format, amax).back;
}

float amax_of_scale(const quant::Format& format, float scale) {
  const float near = scale * (format.has_blocks() ? 6.f * 448.f : format.element.largest);
  float below = near, above = near;
  for (int unit = 0; unit < 4; ++unit) {
    for (const float amax : {below, above})
      if (modelopt_scale(format, amax) == scale) return amax;
    below = std::nextafter(below, 0.f);
    above = std::nextafter(above, 2 * above);
  }
  return near;
}

const quant::Format* written_format(const ModeloptAlgorithm& algorithm) {
  static constexpr quant::Format kInt4 = quant::by_scales(quant::integer_element(4, false, false));
  if (algorithm.rounds_again) return &kInt4;
  return algorithm.format.empty() ? nullptr : &quant::format_named(algorithm.format);
}

std::vector<TensorInfo> modelopt_infos(const ModeloptChoice& form, const std::string& module, int64_t rows,
                                       int64_t columns) {
  const ModeloptAlgorithm& how = *form.algorithm;
  check_fits(form, module);
  std::vector<TensorInfo> infos{
      {module + ".weight", codes_shape(how.layout, how.element.bits, rows, columns),
       dtype_in_files(how.dtype)},
      {module + ".weight_scale", how.scale_shapes(rows, columns, form.block).front(),
       dtype_in_files(how.scale_dtype)}};
  if (how.second) infos.push_back({module + ".weight_scale_2", {}, DType::kF32});
  return infos;
}

std::vector<Tensor> modelopt_tensors(const ModeloptChoice& form, const std::string& module,
                                     const Tensor& values, float amax) {
  const ModeloptAlgorithm& how = *form.algorithm;
  const quant::Format& format = *written_format(how);
  const int64_t rows = values.dim(0), columns = values.dim(1);
  const Tensor filled = how.groups == ScaleGroups::kTiles ? padded_tokens(values, form.block) : values;
  Tensor of_groups;
  if (how.groups == ScaleGroups::kWhole || (how.second && !how.rounds_again))
    of_groups = Tensor::from<float>(std::vector<float>{amax}, {1, 1}, MemoryTag::kWorkspace);
  else if (format.needs_amax())
    of_groups = quant::amax_of(filled, amax_shape(form, filled.shape()));
  const quant::Encoded encoded = quant::encode(module, format, filled, of_groups);
  Tensor codes = encoded.codes;
  if (filled.shape() != values.shape()) codes = codes.narrow(0, 0, rows).narrow(1, 0, columns).contiguous();
  if (how.layout == CodesIn::kPairsOfRows)
    codes =
        quant::packed_rows(module, quant::unpacked_columns(codes, how.element.bits).reshape({rows, columns}));
  const std::vector<TensorInfo> infos = modelopt_infos(form, module, rows, columns);
  std::vector<Tensor> parts{seen_as(codes.reshape(infos[0].shape), infos[0].dtype)};
  if (format.has_blocks()) {
    parts.push_back(seen_as(encoded.scales.reshape(infos[1].shape), infos[1].dtype));
  } else {
    const Tensor scales = Tensor::empty(infos[1].shape, DType::kF32, MemoryTag::kWorkspace);
    for (int64_t i = 0; i < scales.numel(); ++i)
      scales.data<float>()[i] = modelopt_scale(format, of_groups.data<float>()[i]);
    parts.push_back(scales);
  }
  if (how.second) {
    const quant::Format of_whole = how.rounds_again ? quant::by_scales(quant::kE4M3) : format;
    parts.push_back(Tensor::from<float>(std::vector<float>{modelopt_scale(of_whole, amax)}, {1}).reshape({}));
  }
  return parts;
}

}  // namespace temper::foreign
