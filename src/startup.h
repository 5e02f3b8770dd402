#pragma once

// The call lists that CMake generates from each kind's rooms. main() and the tests call register_everything()
// once, first: nothing registers itself.
namespace temper {
namespace device { void register_all(); }
namespace ops { void register_all(); }

inline void register_everything() {
  device::register_all();
  ops::register_all();
}
}  // namespace temper
