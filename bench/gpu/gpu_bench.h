#pragma once
#include "device/facts.h"
#include "ops/selection.h"

namespace temper {

// What benchmarks of kernels know of their GPU.
struct GpuBench {
  HardwareFacts facts;
  double copy_speed = 0;  // bytes read and written per second

  Device device() const { return facts.device; }
  template <class Op>
  ops::BoundOps bind(const typename Op::Signature& signature) const {
    ops::Binder binder({}, facts);
    binder.bind<Op>({signature});
    return binder.finish();
  }
};

}  // namespace temper
