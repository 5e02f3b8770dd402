#include "checkpoints/matrix_writer.h"

#include "checkpoints/compressed_parts.h"
#include "checkpoints/modelopt_parts.h"

namespace temper::checkpoints {
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

class CompressedWriter : public MatrixWriter {
 public:
  CompressedWriter(const ModeloptChoice& form, const QuantizedMatrix& matrix)
      : algorithm_(*form.algorithm), inner_(form, matrix) {}

  std::vector<TensorInfo> list() const override {
    std::vector<TensorInfo> all;
    for (const TensorInfo& info : inner_.list())
      for (TensorInfo& own : compressed_infos(algorithm_, info)) all.push_back(std::move(own));
    return all;
  }
  std::vector<Tensor> encode(const Tensor& values, float amax) const override {
    const std::vector<TensorInfo> infos = inner_.list();
    const std::vector<Tensor> tensors = inner_.encode(values, amax);
    std::vector<Tensor> all;
    for (size_t i = 0; i < infos.size(); ++i)
      for (Tensor& own : compressed_tensors(algorithm_, infos[i], tensors[i])) all.push_back(std::move(own));
    return all;
  }
  bool shares_whole() const override { return inner_.shares_whole(); }

 private:
  const ModeloptAlgorithm& algorithm_;
  ModeloptWriter inner_;
};

}  // namespace

WritesMatrix modelopt_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix) {
  if (form.algorithm == nullptr || written_format(*form.algorithm) == nullptr) return nullptr;
  return std::make_unique<ModeloptWriter>(form, matrix);
}

WritesMatrix compressed_writer(const ModeloptChoice& form, const QuantizedMatrix& matrix) {
  return std::make_unique<CompressedWriter>(form, matrix);
}

}  // namespace temper::checkpoints
