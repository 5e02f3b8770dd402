#include "device/cuda/moments.h"

#include "device/cuda/events.h"
#include "device/cuda/stream.h"

namespace temper::device {
namespace {

class GpuMoment final : public Moment {
 public:
  explicit GpuMoment(Device gpu) : event_(gpu.index, Event::Kind::kTimed) {
    check(event_.record(stream(gpu)), "cudaEventRecord");
  }

  double seconds_since(const Moment& earlier) const override {
    check(cudaEventSynchronize(event_.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<const GpuMoment&>(earlier).event_.get(),
                               event_.get()),
          "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  Event event_;
};

}  // namespace

std::shared_ptr<const Moment> mark_gpu(Device gpu) { return std::make_shared<GpuMoment>(gpu); }

}  // namespace temper::device
