#include "foreign/matrix_writers.h"

#include "foreign/compressed_parts.h"
#include "foreign/modelopt_parts.h"
#include "quant/packing.h"
#include "quant/zero_points.h"

namespace temper::foreign {
namespace {

class ModeloptWriter : public MatrixWriter {
 public:
  ModeloptWriter(const ModeloptChoice& form, const QuantizedMatrix& matrix)
      : form_(form), module_(matrix.part("")), rows_(matrix.rows), columns_(matrix.columns) {}

  std::vector<TensorInfo> list() const override { return modelopt_infos(form_, module_, rows_, columns_); }
  std::vector<Tensor> encode(const Tensor& values, float amax) const override {
    return modelopt_tensors(form_, module_, values, amax);
  }
  bool shares_whole() const override {
    return form_.algorithm->groups == ScaleGroups::kWhole || form_.algorithm->second;
  }

 private:
  ModeloptChoice form_;
  std::string module_;
  int64_t rows_, columns_;
};

// Integers with zero points, which compressed-tensors alone has: the ends of ranges are those of the values.
class ZeroPointWriter : public MatrixWriter {
 public:
  ZeroPointWriter(const ModeloptChoice& form, const QuantizedMatrix& matrix)
      : algorithm_(*form.algorithm),
        module_(matrix.part("")),
        values_{matrix.rows, matrix.columns},
        scales_(algorithm_.scale_shapes(matrix.rows, matrix.columns, form.block).front()) {}

  std::vector<TensorInfo> list() const override {
    return {{module_ + ".weight", values_, dtype_in_files(algorithm_.dtype)},
            {module_ + ".weight_scale", scales_, DType::kF32},
            {module_ + ".weight_zero_point", scales_, DType::kI8}};
  }
  std::vector<Tensor> encode(const Tensor& values, float) const override {
    const Shape groups = scales_.ndim() == 1 ? Shape{scales_[0], 1} : scales_;
    const quant::Element& element = algorithm_.element;
    const quant::EncodedWithZeros encoded =
        quant::encode_with_zeros(module_, element, values, quant::bounds_of(values, groups));
    const Tensor zeros = Tensor::empty(scales_, DType::kI8, MemoryTag::kWorkspace);
    for (int64_t i = 0; i < zeros.numel(); ++i)
      zeros.data<int8_t>()[i] =
          static_cast<int8_t>(quant::number_of(element, encoded.zeros.data<uint8_t>()[i]));
    const Tensor codes = quant::unpacked_columns(encoded.codes, element.bits);
    return {seen_as(codes, dtype_in_files(algorithm_.dtype)), encoded.steps.reshape(scales_), zeros};
  }

 private:
  const ModeloptAlgorithm& algorithm_;
  std::string module_;
  Shape values_, scales_;
};

class CompressedWriter : public MatrixWriter {
 public:
  CompressedWriter(const ModeloptChoice& form, const QuantizedMatrix& matrix) : algorithm_(*form.algorithm) {
    if (algorithm_.zeros)
      inner_ = std::make_unique<ZeroPointWriter>(form, matrix);
    else
      inner_ = std::make_unique<ModeloptWriter>(form, matrix);
  }

  std::vector<TensorInfo> list() const override {
    std::vector<TensorInfo> all;
    for (const TensorInfo& info : inner_->list())
      for (TensorInfo& own : compressed_infos(algorithm_, info)) all.push_back(std::move(own));
    return all;
  }
  std::vector<Tensor> encode(const Tensor& values, float amax) const override {
    const std::vector<TensorInfo> infos = inner_->list();
    const std::vector<Tensor> tensors = inner_->encode(values, amax);
    std::vector<Tensor> all;
    for (size_t i = 0; i < infos.size(); ++i)
      for (Tensor& own : compressed_tensors(algorithm_, infos[i], tensors[i])) all.push_back(std::move(own));
    return all;
  }
  bool shares_whole() const override { return inner_->shares_whole(); }

 private:
  const ModeloptAlgorithm& algorithm_;
  std::unique_ptr<const MatrixWriter> inner_;
};

}  // namespace

WritesMatrix modelopt_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix) {
  if (form.algorithm == nullptr || written_format(*form.algorithm) == nullptr) return nullptr;
  return std::make_unique<ModeloptWriter>(form, matrix);
}

WritesMatrix compressed_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix) {
  return std::make_unique<CompressedWriter>(form, matrix);
}

}  // namespace temper::foreign
