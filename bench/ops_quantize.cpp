#include "bench/ops.h"
#include "ops/fake_quantize/fake_quantize.h"

namespace temper::bench {
namespace {

using ops::FakeQuantize;
using quant::Scaling;

struct Named {
  const char* name;
  quant::Format format;
};
const Named kFormats[] = {
    {"int8", {quant::integer_element(8, false, false), Scaling::kIntegers}},
    {"int4", {quant::integer_element(4, false, false), Scaling::kIntegers}},
    {"int8_zero_points", quant::by_zero_points(quant::integer_element(8, false, false))},
    {"int4_zero_points", quant::by_zero_points(quant::integer_element(4, false, false))},
    {"fp8", {quant::kE4M3, Scaling::kFloats}},
    {"fp8_e5m2", {quant::kE5M2, Scaling::kFloats}},
    {"nvfp4", {quant::kE2M1, Scaling::kTwoLevels, 16}},
    {"mxfp8", {quant::kE4M3, Scaling::kPowersOfTwo, 32}},
    {"mxfp6", {quant::kE3M2, Scaling::kPowersOfTwo, 32}},
    {"mxfp4", {quant::kE2M1, Scaling::kPowersOfTwo, 32}},
    {"mxint8", {quant::kInt8Of64ths, Scaling::kPowersOfTwo, 32}},
};

void add_one(const Size& size, DType dtype, const Named& named) {
  const std::string name = fmt::format("{} {}", size.model.name, named.name);
  const Shape shape{row_tokens(size), size.model.hidden};
  const bool channels = !named.format.has_blocks();
  for_each_provider<FakeQuantize>(
      {dtype, named.format}, label(dtype, name), size.eager, [&](const auto& full, const auto& ops) {
        add_passes(full, dtype, [=]() -> Build {
          const auto ends_at = [&](float end) {
            const std::vector<float> all(static_cast<size_t>(channels ? shape[0] : 1), end);
            return Tensor::from(all).reshape({-1, 1}).on(machine().device);
          };
          Tensor amax, low;
          if (named.format.needs_amax()) amax = ends_at(1);  // of what is filled
          if (named.format.has_zero_points()) low = ends_at(-1);
          return [=, x = filled(shape, dtype)](Tape& tape) {
            if (low.defined())
              return fake_quantize(tape, ops, input(tape, x), {low, amax}, named.format, channels);
            return fake_quantize(tape, ops, input(tape, x), amax, named.format, channels);
          };
        });
      });
}

}  // namespace

void add_fake_quantize() {
  for (const DType dtype : kDTypes)
    for (const Size& size : sizes())
      for (const Named& named : kFormats) add_one(size, dtype, named);
}

}  // namespace temper::bench
