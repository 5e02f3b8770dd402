#pragma once

namespace temper::backends {

void register_tensors();

}  // namespace temper::backends
