#pragma once

namespace temper::training {

// What a training step keeps of the forward pass. The bits are the same with each.
enum class Checkpointing {
  kNone,       // everything that backward needs
  kSelective,  // except what is cheap to recompute: norms, rotated heads, the gated product
  kFull,       // only each layer's input
};

}  // namespace temper::training
