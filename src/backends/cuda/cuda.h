#pragma once

namespace temper::backends {

void register_tensors();
void register_primitives();

}  // namespace temper::backends
