#include "bench/ops.h"
#include "startup.h"

int main(int argc, char** argv) {
  temper::register_everything();
  temper::bench::add_linear();
  temper::bench::add_lora_linear();
  temper::bench::add_dropout();
  temper::bench::add_attention();
  temper::bench::add_cross_entropy();
  temper::bench::add_embedding();
  temper::bench::add_rms_norm();
  temper::bench::add_residual_norm();
  temper::bench::add_rotary();
  temper::bench::add_swiglu();
  temper::bench::add_adamw();
  temper::bench::add_global_norm();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
