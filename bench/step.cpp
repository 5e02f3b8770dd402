#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/threads/threads.h"
#include "bench/arguments.h"
#include "bench/shapes.h"
#include "bench/training_rows.h"
#include "device/transfer.h"
#include "optimizers/adamw.h"
#include "training/trainer.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(What a training step costs in addition to its kernels: all of the host's work until it has launched them.
  temper_bench_step [SHAPE | FOLDER] [--hardware NAME | --device D] [--dtype T] [--rows N] [--length N]
                    [--micro-batches N] [--steps N] [--threads N] [--checkpointing none|selective|full]
--hardware names hardware that need not be here (cuda-sm90; `temper ops --hardware` lists them): the model
lives on a device that only counts, with the kernels that are chosen there, so no kernel runs and none is
launched. On a GPU (--device cuda) steps are not captured in graphs, each begins when the device is idle,
and its time ends when the last kernel has been asked for. On a CPU, the default, it is the whole step:
with few tokens (--length 8) mostly what surrounds kernels.
Prints one line of JSON, in microseconds: the median and the least time of a step (`wall_us`), and the
processor time of all threads (`cpu_us`), which what else a machine does disturbs less.
)";

struct Options {
  std::string model = "demo", device = "cpu", hardware, checkpointing = "none";
  DType dtype = DType::kF32;
  int64_t rows = 1, length = 8, micro_batches = 1, steps = 200, threads = 1;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

models::BuildOptions build_options(const Options& options) {
  models::BuildOptions build;
  build.dtype = options.dtype;
  build.counted = !options.hardware.empty();
  build.facts = build.counted ? known_hardware(options.hardware) : detect_hardware(options.device);
  build.ops.emplace();
  return build;
}

training::TrainerOptions trainer_options(const Options& options) {
  training::TrainerOptions trainer;
  trainer.micro_batch_tokens = options.rows * options.length;
  trainer.cuda_graph = training::CudaGraph::kOff;
  trainer.checkpointing = options.checkpointing == "full"        ? training::Checkpointing::kFull
                          : options.checkpointing == "selective" ? training::Checkpointing::kSelective
                                                                 : training::Checkpointing::kNone;
  return trainer;
}

struct Times {
  std::vector<double> wall, cpu;  // seconds
};

Times measure(training::Trainer& trainer, const Rows& rows, Device device, int64_t steps) {
  constexpr int64_t kWarmUp = 10;
  Times times;
  for (int64_t i = 0; i < kWarmUp + steps; ++i) {
    synchronize(device);
    const double wall = seconds_now(), cpu = processor_seconds();
    training::PendingStep step = trainer.begin(rows, 1e-5);
    if (i >= kWarmUp) {
      times.cpu.push_back(processor_seconds() - cpu);
      times.wall.push_back(seconds_now() - wall);
    }
    step.wait();
  }
  return times;
}

std::string summary(const char* name, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return fmt::format("\"{0}\": {1:.1f}, \"least_{0}\": {2:.1f}", name, seconds[seconds.size() / 2] * 1e6,
                     seconds.front() * 1e6);
}

int run(const Options& options) {
  set_num_threads(static_cast<int>(options.threads));
  const auto model = bench_model(options.model, options.length, build_options(options));
  optimizers::AdamW optimizer(model->decoder.parameters(), model->decoder.ops(), {});
  training::Trainer trainer(model->decoder, optimizer, trainer_options(options));
  TokenRows source({options.rows * options.micro_batches, options.length}, model->decoder.config().vocab_size,
                   "");
  const Times times = measure(trainer, source.next(), model->decoder.device(), options.steps);
  std::printf(
      "{\"model\": \"%s\", \"on\": \"%s\", \"dtype\": \"%s\", \"tokens\": %lld, \"threads\": %lld, %s, %s}\n",
      options.model.c_str(), (options.hardware.empty() ? options.device : options.hardware).c_str(),
      std::string(to_string(options.dtype)).c_str(),
      static_cast<long long>(options.rows * options.micro_batches * options.length),
      static_cast<long long>(options.threads), summary("wall_us", times.wall).c_str(),
      summary("cpu_us", times.cpu).c_str());
  return 0;
}

int main_checked(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.model);
  while (arguments.next()) {
    if (!(arguments.take("--device", options.device) || arguments.take("--hardware", options.hardware) ||
          arguments.take("--checkpointing", options.checkpointing) ||
          arguments.take("--dtype", options.dtype) || arguments.take("--rows", options.rows) ||
          arguments.take("--length", options.length) ||
          arguments.take("--micro-batches", options.micro_batches) ||
          arguments.take("--steps", options.steps) || arguments.take("--threads", options.threads)))
      arguments.refuse();
  }
  return run(options);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_step", temper::kUsage, temper::main_checked, argc, argv);
}
