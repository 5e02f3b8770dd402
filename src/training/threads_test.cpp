// The pool of threads while a model is trained.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/onednn/tile.h"
#include "base/files.h"
#include "base/pinning.h"
#include "base/threads.h"
#include "tests/support/op_testing.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/trainer.h"

namespace temper::training {
namespace {

std::vector<float> trained_weights() {
  TinyModel fast;
  fast.ops = {};
  const auto model = tiny_model(fast);
  layers::ParameterStore& parameters = model->decoder.parameters();
  optimizers::AdamW optimizer(parameters, model->decoder.ops(), {});
  Trainer trainer(model->decoder, optimizer, {});
  for (int i = 0; i < 3; ++i) trainer.step({test_row(1, {9, 30}), test_row(2, {4, 12, 40})}, 1e-2);
  std::vector<float> all;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (const float value : parameters[i].value.values<float>()) all.push_back(value);
  return all;
}

void multiply_by_library() {
  const Tensor a = Tensor::zeros({512, 512}, DType::kF32), c = Tensor::zeros({512, 512}, DType::kF32);
  backends::multiply_by_onednn({.a = backends::rows_of(a),
                                .b = backends::rows_of(a),
                                .m = 512,
                                .n = 512,
                                .k = 512,
                                .c = c.data<float>(),
                                .stride = 512},
                               backends::Bf16Path::kWiden);
}

// Threads on cores of their own give the same bits, and neither steps nor the library's products bring
// others.
TEST(Threads, ThereIsOnePoolWhichMayBePinned) {
  ::unsetenv("OMP_PROC_BIND");
  const auto threads_of_process = [] { return list_directory("/proc/self/task").size(); };
  const op_testing::Threads two(2);
  parallel_for(2, [](int64_t) {});
  const size_t before = threads_of_process();
  ASSERT_TRUE(pin_threads(Pinning::kOn));
  const std::vector<float> pinned = trained_weights();
  EXPECT_FALSE(pin_threads(Pinning::kOff));
  EXPECT_EQ(pinned, trained_weights());
  multiply_by_library();
  EXPECT_LE(threads_of_process(), before);  // others, as a driver's, may have ended
}

}  // namespace
}  // namespace temper::training
