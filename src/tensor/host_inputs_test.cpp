#include "tensor/host_inputs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tensor/repeated_work.h"
#include "tests/support/gpu.h"

namespace temper {
namespace {

HostInputs::Write write_number(const int32_t& number) {
  return [&number](std::byte* to) { *reinterpret_cast<int32_t*>(to) = number; };
}

TEST(HostInputs, OutsideOfAScopeTheyAreBroughtOnce) {
  int32_t number = 3;
  const Tensor found = from_host("number", {1}, DType::kI32, {}, write_number(number));
  number = 4;
  EXPECT_EQ(found.values<int32_t>()[0], 3);
  EXPECT_FALSE(HostInputs::recording());
  take_for_granted("nothing", [] { return false; });  // never called
}

TEST(HostInputs, AreBroughtAnew) {
  HostInputs inputs({});
  int32_t number = 3, large = 0;
  Tensor first, second, wide;
  {
    const HostInputs::Scope scope(inputs, false);
    first = from_host("number", {1}, DType::kI32, {}, write_number(number));
    EXPECT_EQ(first.values<int32_t>()[0], 3);
    EXPECT_EQ(from_host("number", {1}, DType::kI32, {}, write_number(large)).raw(), first.raw());
    EXPECT_THROW(from_host("number", {2}, DType::kI32, {}, write_number(number)), Error);
    second = from_host("large", {1 << 20}, DType::kI64, {},
                       [&](std::byte* to) { reinterpret_cast<int64_t*>(to)[(1 << 20) - 1] = large; });
    wide = from_host("empty", {0}, DType::kF32, {}, [](std::byte*) {});
  }
  number = 5;
  large = 7;
  EXPECT_EQ(first.values<int32_t>()[0], 3);
  inputs.upload();
  EXPECT_EQ(first.values<int32_t>()[0], 5);
  EXPECT_EQ(second.values<int64_t>()[(1 << 20) - 1], 7);
  EXPECT_EQ(wide.numel(), 0);
  inputs.forget();
  number = 6;
  inputs.upload();
  EXPECT_EQ(first.values<int32_t>()[0], 5);
}

TEST(HostInputs, WhatIsTakenForGrantedIsAskedAgain) {
  HostInputs inputs({});
  bool holds = true;
  int asked = 0;
  {
    const HostInputs::Scope scope(inputs, false);
    for (int i = 0; i < 3; ++i)  // one name, one question
      take_for_granted("it", [&] { return ++asked > 0 && holds; });
  }
  EXPECT_TRUE(inputs.hold());
  EXPECT_EQ(asked, 1);
  holds = false;
  EXPECT_FALSE(inputs.hold());
  inputs.forget();
  EXPECT_TRUE(inputs.hold());
}

TEST(HostInputs, ValuesAreSharedByCopiesAndNotByAssignedNumbers) {
  const HostValue<float> a = 1.f;
  HostValue<float> b = a;
  a.set(2);
  EXPECT_EQ(b, 2.f);
  b = 3.f;
  EXPECT_EQ(a, 2.f);
  b.set(4);
  EXPECT_EQ(a, 2.f);
}

// On a GPU captured from the second run on; on the CPU each run is a plain one, with the same results.
void check_repeats(Device device) {
  const Tensor ids = Tensor::from(std::vector<float>{1, 2, 3});
  const HostValue<float> factor = 0.f;
  Tensor sum = Tensor::zeros({4}, DType::kF32, MemoryTag::kData, device);
  int calls = 0;
  int64_t rows = 3;
  RepeatedWork work(device, std::make_shared<Arena>(device), [&] {
    ++calls;
    take_for_granted("rows", [&rows, before = rows] { return rows == before; });
    sum.narrow(0, 0, 3).copy_from(from_host(ids, device));
    sum.narrow(0, 3, 1).copy_from(from_host(factor, device));
  });
  for (int run = 0; run < 6; ++run) {
    if (run == 4) rows = 2;
    const float now = static_cast<float>(run);
    for (float& id : ids.values<float>()) id = now;
    factor.set(10 * now);
    EXPECT_EQ(work.prepared(), run != 0 && run != 4);
    work.run();
    const Tensor found = sum.on({});
    EXPECT_EQ(found.values<float>()[2], now);
    EXPECT_EQ(found.values<float>()[3], 10 * now);
  }
  EXPECT_EQ(calls, device.type == DeviceType::kCpu ? 6 : 4);
  EXPECT_EQ(work.captured(), device.type != DeviceType::kCpu);
}

TEST(RepeatedWork, TakesItsInputsAnew) { check_repeats({}); }

TEST(GpuRepeatedWork, TakesItsInputsAnew) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  check_repeats({DeviceType::kCuda, 0});
}

}  // namespace
}  // namespace temper
