#include "backends/cpu/vector_targets.h"
#include "backends/onednn/peak.h"

namespace temper::backends {

void register_onednn() {
  limit_vector_targets();
  registry<PeakProbe>().add("onednn", {PeakProbe::Kind::kProducts, onednn_matmul_peak});
}

}  // namespace temper::backends
