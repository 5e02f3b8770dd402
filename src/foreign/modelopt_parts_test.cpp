#include "foreign/modelopt_parts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace temper::foreign {
namespace {

// What a file's scale says of the values is found again, whatever is rounded between the two.
TEST(ModeloptParts, AnAmaxGivesTheScaleThatItWasReadFrom) {
  for (const char* name : {"fp8", "int8", "nvfp4"}) {
    const quant::Format& format = quant::format_named(name);
    float amax = 0.013f;
    for (int i = 0; i < 200; ++i, amax *= 1.0831f) {
      const float scale = modelopt_scale(format, amax);
      ASSERT_EQ(modelopt_scale(format, amax_of_scale(format, scale)), scale) << name << " " << amax;
      ASSERT_NEAR(amax_of_scale(format, scale) / amax, 1, 1e-6) << name;
    }
  }
}

// Of scales that no amax has the nearest.
TEST(ModeloptParts, ScalesThatNoAmaxHas) {
  const quant::Format& int8 = quant::format_named("int8");
  EXPECT_EQ(modelopt_scale(int8, 0x1p-30f), 1.f) << "so small an amax counts as 0";
  EXPECT_EQ(amax_of_scale(int8, 0x1p-40f), 127 * 0x1p-40f);
}

TEST(ModeloptParts, DtypesAndFormatsByTheirNames) {
  EXPECT_EQ(dtype_in_files("F8_E4M3"), DType::kF8E4M3);
  EXPECT_EQ(dtype_in_files("I8"), DType::kI8);
  EXPECT_EQ(dtype_in_files("U8"), DType::kU8);
  EXPECT_EQ(dtype_in_files("F32"), DType::kF32);
  EXPECT_EQ(written_format(*find_modelopt_algorithm("NVFP4")), &quant::format_named("nvfp4"));
  EXPECT_EQ(written_format(*find_modelopt_algorithm("W4A8_NVFP4_FP8")), nullptr) << "it is only read";
  EXPECT_EQ(written_format(*find_modelopt_algorithm("W4A8_AWQ"))->element.bits, 4);
}

// The last tiles may be smaller: what fills them up is in no file.
TEST(ModeloptParts, TilesOfTheEdges) {
  const Tensor values = Tensor::empty({3, 5}, DType::kF32, MemoryTag::kData);
  for (int64_t i = 0; i < 15; ++i) values.data<float>()[i] = static_cast<float>(i + 1);
  const ModeloptChoice form{find_modelopt_algorithm("fp8_pb_wo"), 2};
  const std::vector<Tensor> parts = modelopt_tensors(form, "m.x", values, 15);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].shape(), (Shape{3, 5}));
  EXPECT_EQ(parts[1].shape(), (Shape{2, 1, 3, 1}));
  const std::vector<float> largest{7, 9, 10, 12, 14, 15};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(parts[1].values<float>()[i], largest[i] / 448) << i;
}

}  // namespace
}  // namespace temper::foreign
