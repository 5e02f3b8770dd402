#pragma once
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoints/hf_folder.h"
#include "tests/support/errors.h"

// Folders of one matrix, whose tensors a test writes down.
namespace temper::checkpoints {

using Values = std::vector<float>;

inline Tensor zeros(const Shape& shape, DType dtype) { return Tensor::zeros(shape, dtype, MemoryTag::kData); }

// Tensors of the matrix m.x, by the endings of their names.
using Part = std::pair<std::string, Tensor>;
using Parts = std::vector<Part>;

class Quantized : public testing::Test {
 protected:
  void add(const std::string& name, const Tensor& tensor) { tensors_.emplace_back(name, tensor); }
  void write() {
    std::vector<TensorInfo> infos;
    std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
      return size_of(a.second.dtype()) > size_of(b.second.dtype());
    });
    for (const auto& [name, tensor] : tensors_) infos.push_back({name, tensor.shape(), tensor.dtype()});
    SafetensorsWriter writer(folder_ / "model.safetensors", infos);
    for (const auto& [name, tensor] : tensors_) writer.add(tensor);
    writer.close();
  }
  void config(const std::string& quantization) {
    write_file(folder_ / "config.json", fmt::format(R"({{"quantization_config": {}}})", quantization));
  }
  void algorithm(const std::string& name, const std::string& more = "") {
    config(fmt::format(R"({{"quant_method": "modelopt", "quant_algo": "{}"{}}})", name, more));
  }
  void add_matrix(int64_t rows, int64_t columns) {
    table_.add(
        {.name = "x", .shape = {rows, columns}, .axes = {"a", "b"}, .sources = {{"m.x.weight", rows}}});
  }
  // A model of this matrix alone, whose folder has no tensors yet.
  void shape(int64_t rows, int64_t columns) {
    table_ = {};
    tensors_.clear();
    add_matrix(rows, columns);
  }
  Values load() {
    write();
    return loaded();
  }
  Values loaded() {
    const WeightSpec& spec = *table_.find("x");
    const Tensor to = Tensor::zeros(spec.shape, DType::kF32, MemoryTag::kData);
    load_weights(ModelFolder::open(folder_.path()), table_, [&](const WeightSpec&) { return to; });
    const auto values = to.values<float>();
    return {values.begin(), values.end()};
  }
  std::string load_error() {
    return error_of([&] { load(); });
  }

  TemporaryDirectory folder_;
  WeightTable table_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

// A tensor as tools/oracles/make_compressed_cases.py and tools/oracles/make_quantized_folder_cases.py write
// it.
inline Tensor recorded(const Json& json) {
  std::vector<int64_t> sizes;
  for (const Json& size : json.as_array()[1].as_array()) sizes.push_back(size.as_int());
  const Tensor all =
      Tensor::empty(Shape(sizes), *dtype_from_string(json.as_array()[0].as_string()), MemoryTag::kData);
  const std::string& bytes = json.as_array()[2].as_string();
  std::vector<uint8_t> data;
  for (size_t i = 0; i < bytes.size(); i += 2)
    data.push_back(static_cast<uint8_t>(std::stoul(bytes.substr(i, 2), nullptr, 16)));
  all.copy_from_host(data.data(), static_cast<int64_t>(data.size()));
  return all;
}

}  // namespace temper::checkpoints
