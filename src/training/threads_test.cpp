// The pool of threads while a model is trained.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "backends/onednn/tiles/packed_tile.h"
#include "backends/onednn/tiles/tile.h"
#include "base/files.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"
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

// By tasks of the pool and by the thread that hands them out, as kernels do.
void multiply_by_library() {
  const Tensor a = Tensor::zeros({512, 512}, DType::kF32);
  const auto multiply = [&](int64_t) {
    const Tensor c = Tensor::zeros({512, 512}, DType::kF32);
    backends::multiply_by_onednn({.a = backends::rows_of(a),
                                  .b = backends::rows_of(a),
                                  .m = 512,
                                  .n = 512,
                                  .k = 512,
                                  .c = c.data<float>(),
                                  .stride = 512},
                                 backends::Bf16Path::kWiden);
  };
  multiply(0);
  parallel_for(8, multiply);
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

std::vector<std::vector<int>> a_core_for_each(int threads) {
  std::vector<std::vector<int>> cores;
  for (size_t i = 0; i < static_cast<size_t>(threads); ++i)
    cores.push_back({usable_cores()[i % usable_cores().size()]});
  return cores;
}

// A library that is set to use one thread must not move the thread of the pool that calls it.
TEST(Threads, StayOnTheirCoresWhileTheLibraryMultiplies) {
  ::unsetenv("OMP_PROC_BIND");
  const op_testing::Threads two(2);
  ASSERT_TRUE(pin_threads(Pinning::kOn));
  multiply_by_library();
  EXPECT_EQ(cores_of_threads(), a_core_for_each(2));
  EXPECT_EQ(num_threads(), 2);
  pin_threads(Pinning::kOff);
}

// The same in a training step on a processor for which we have no matrix multiplication of our own: the limit
// is read once, so that it needs a process of its own.
TEST(ThreadsDeathTest, StayOnTheirCoresInATrainingStepByTheLibrary) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::unsetenv("OMP_PROC_BIND");
  const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string before = limit == nullptr ? "" : limit;
  ::setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
  const auto train = [] {
    const op_testing::Threads two(2);
    pin_threads(Pinning::kOn);
    trained_weights();
    const bool stayed = cores_of_threads() == a_core_for_each(2);
    std::fputs(backends::has_packed_tile(DType::kF32) ? "our own" : stayed ? "stayed" : "moved", stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(train(), testing::ExitedWithCode(0), "^stayed$");
  if (limit == nullptr)
    ::unsetenv("ONEDNN_MAX_CPU_ISA");
  else
    ::setenv("ONEDNN_MAX_CPU_ISA", before.c_str(), 1);
}

TEST(Threads, AreNotChangedByTasks) {
  const op_testing::Threads two(2);
  EXPECT_THROW(parallel_for(2, [](int64_t) { set_num_threads(1); }), Error);
}

}  // namespace
}  // namespace temper::training
