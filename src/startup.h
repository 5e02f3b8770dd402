#pragma once

// The call lists that CMake generates from each kind's rooms. main() and the tests call register_everything()
// once, first: nothing registers itself.
namespace temper {
// clang-format off
namespace device { void register_all(); }
namespace formats { void register_all(); }
namespace media { void register_all(); }
namespace preprocessing { void register_all(); }
namespace rewards { void register_all(); }
namespace collectives { void register_all(); }
namespace quant { void register_all(); }
namespace backends { void register_all(); }
namespace ops { void register_all(); }
namespace foreign { void register_all(); }
namespace models { void register_all(); }
namespace recipes { void register_all(); }
// clang-format on

inline void register_everything() {
  device::register_all();
  formats::register_all();
  media::register_all();
  preprocessing::register_all();
  rewards::register_all();
  collectives::register_all();
  quant::register_all();
  backends::register_all();  // before ops: fast kernels are preferred to eager
  ops::register_all();
  foreign::register_all();
  models::register_all();
  recipes::register_all();
}
}  // namespace temper
