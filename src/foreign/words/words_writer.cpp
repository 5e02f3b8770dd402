#include "foreign/words/words_writer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads/threads.h"

namespace temper::foreign {
namespace {

class WordsWriter : public MatrixWriter {
 public:
  WordsWriter(const QuantizedMatrix& matrix, const WordsForm& form)
      : matrix_(matrix), form_(form), groups_((matrix.columns + form.group - 1) / form.group) {}

  std::vector<TensorInfo> list() const override {
    return {{matrix_.part(".qweight"),
             shape_in_words(form_.codes_in, form_.bits, matrix_.columns, matrix_.rows), DType::kI32},
            {matrix_.part(".qzeros"), shape_in_words(form_.zeros_in, form_.bits, groups_, matrix_.rows),
             DType::kI32},
            {matrix_.part(".scales"), {groups_, matrix_.rows}, form_.scales}};
  }

  std::vector<Tensor> encode(const Tensor& values, float) const override {
    check_finite(values);
    const Tensor scales = scales_of(values);
    const Tensor stored = scales.to(DType::kF32, MemoryTag::kWorkspace);
    const Tensor codes = Tensor::empty({matrix_.columns, matrix_.rows}, DType::kU8, MemoryTag::kWorkspace),
                 zeros = Tensor::empty({groups_, matrix_.rows}, DType::kU8, MemoryTag::kWorkspace);
    parallel_for(matrix_.rows, [&](int64_t row) {
      for (int64_t group = 0; group < groups_; ++group) {
        const std::span<const float> x = own(values, row, group);
        const float step = stored.data<float>()[group * matrix_.rows + row];
        const auto zero = static_cast<float>(zero_of(x, step));
        zeros.data<uint8_t>()[group * matrix_.rows + row] = static_cast<uint8_t>(zero);
        for (size_t i = 0; i < x.size(); ++i)
          codes.data<uint8_t>()[(group * form_.group + static_cast<int64_t>(i)) * matrix_.rows + row] =
              static_cast<uint8_t>(std::clamp(std::nearbyint(x[i] / step) + zero, 0.f, largest()));
      }
    });
    if (form_.zeros_less_one)
      for (uint8_t& zero : zeros.values<uint8_t>()) --zero;
    return {words_from(codes, form_.codes_in, form_.bits), words_from(zeros, form_.zeros_in, form_.bits),
            scales};
  }

 private:
  float largest() const { return static_cast<float>((1 << form_.bits) - 1); }
  float middle() const { return static_cast<float>(1 << (form_.bits - 1)); }

  std::span<const float> own(const Tensor& values, int64_t row, int64_t group) const {
    const int64_t first = group * form_.group, end = std::min(first + form_.group, matrix_.columns);
    return values.values<float>().subspan(static_cast<size_t>(row * matrix_.columns + first),
                                          static_cast<size_t>(end - first));
  }

  // The least and the largest value, and 0. A zero that is stored less one is at least 1.
  std::pair<float, float> ends_of(std::span<const float> x) const {
    float low = 0, high = 0;
    for (const float value : x) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (form_.symmetric) return {-std::max(-low, high), std::max(-low, high)};
    if (form_.zeros_less_one) low = std::min(low, -high / (largest() - 1));
    return {low, high};
  }

  void check_finite(const Tensor& values) const {
    for (const float value : values.values<float>())
      if (!std::isfinite(value)) fail("[{}] a value is {}: it has no code", matrix_.name, value);
  }

  // In the dtype of the file; 1 where that would be 0.
  Tensor scales_of(const Tensor& values) const {
    const Tensor steps = Tensor::empty({groups_, matrix_.rows}, DType::kF32, MemoryTag::kWorkspace);
    parallel_for(matrix_.rows, [&](int64_t row) {
      for (int64_t group = 0; group < groups_; ++group) {
        const auto [low, high] = ends_of(own(values, row, group));
        steps.data<float>()[group * matrix_.rows + row] =
            form_.symmetric ? high / (middle() - 1) : (high - low) / largest();
      }
    });
    const Tensor rounded = steps.to(form_.scales, MemoryTag::kWorkspace).to(DType::kF32);
    for (float& step : rounded.values<float>())
      if (step == 0) step = 1;
    return rounded.to(form_.scales, MemoryTag::kWorkspace);
  }

  int zero_of(std::span<const float> x, float step) const {
    if (form_.symmetric) return static_cast<int>(middle());
    const float zero = -std::nearbyint(ends_of(x).first / step);
    return static_cast<int>(std::clamp(zero, form_.zeros_less_one ? 1.f : 0.f, largest()));
  }

  QuantizedMatrix matrix_;
  WordsForm form_;
  int64_t groups_;
};

}  // namespace

WordsForm words_form_of(const WordedMatrix& held, int64_t rows) {
  WordsForm form{held.codes_in, held.zeros_in, held.bits,          held.zeros_less_one,
                 false,         held.group,    held.scales.dtype()};
  const Tensor zeros = zeros_in(held, 0, rows);
  const auto all = zeros.values<float>();
  const auto middle = static_cast<float>(1 << (held.bits - 1));
  form.symmetric = std::all_of(all.begin(), all.end(), [&](float zero) { return zero == middle; });
  return form;
}

WritesMatrix words_writer(const QuantizedMatrix& matrix, const WordsForm& form) {
  return std::make_unique<WordsWriter>(matrix, form);
}

}  // namespace temper::foreign
