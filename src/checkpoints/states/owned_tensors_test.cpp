#include "checkpoints/states/owned_tensors.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/hash.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace temper::checkpoints {
namespace {

Tensor filled(const Shape& shape, float value, Device device) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(shape.numel()), value))
      .reshape(shape)
      .on(device, MemoryTag::kOptimizer);
}

std::vector<Device> devices() {
  std::vector<Device> all{{}};
  if (why_no_gpu().empty()) all.push_back({DeviceType::kCuda, 0});
  return all;
}

// Training continues while a checkpoint is written: it has the values that the tensors held when they were
// copied, not those that they hold later.
TEST(OwnedTensors, CopiesStayAsTheyWereTaken) {
  const TemporaryDirectory folder;
  const Placement whole({300, 4});
  for (const Device device : devices()) {
    const Tensor moments = filled({300, 4}, 0, device), amax = filled({2}, 7, device);
    std::vector<std::string> hashes;
    for (int64_t step = 1; step <= 3; ++step) {
      moments.copy_from(filled({300, 4}, static_cast<float>(step), device));
      OwnedTensors owned({{"moments", moments, &whole}}, 0);
      owned.add("amax", amax);
      owned.copy();
      moments.copy_from(filled({300, 4}, -1, device));
      StateWriter writer(folder.path(), step);
      owned.add_to(writer, "optimizer", 0, 1);
      writer.commit();
      const SafetensorsFile file =
          StateReader::open(folder / state_name(step)).tensors("optimizer.safetensors");
      const Tensor found = file.tensor("moments");
      for (const float value : found.values<float>())
        ASSERT_EQ(value, static_cast<float>(step)) << to_string(device);
      EXPECT_EQ(file.tensor("amax").values<float>()[1], 7.f);
      hashes.push_back(hash_file(file.path()));
    }
    EXPECT_NE(hashes[0], hashes[1]);
    EXPECT_NE(hashes[1], hashes[2]);
  }
}

TEST(OwnedTensors, AreOfTheFirstRankThatHasThem) {
  const Placement whole({4, 4});
  const Tensor tensor = Tensor::zeros({4, 4}, DType::kF32);
  EXPECT_EQ(OwnedTensors({{"w", tensor, &whole}}, 0).bytes(), 64);
  EXPECT_TRUE(OwnedTensors({{"w", tensor, &whole}}, 1).empty());
  const TemporaryDirectory folder;
  StateWriter writer(folder.path(), 1);
  OwnedTensors({{"w", tensor, &whole}}, 1).add_to(writer, "optimizer", 1, 2);
  EXPECT_TRUE(writer.files().empty()) << "no file without tensors";
}

TEST(OwnedTensors, MayBeGivenUp) {
  const TemporaryDirectory folder;
  const Placement whole({4});
  StateWriter writer(folder.path(), 1);
  OwnedTensors owned({{"w", Tensor::zeros({4}, DType::kF32), &whole}}, 0);
  expect_has(error_of([&] { owned.add_to(writer, "optimizer", 0, 1, true); }),
             "[optimizer.safetensors] was given up, as the run ended");
}

}  // namespace
}  // namespace temper::checkpoints
