#pragma once
#include "ops/latent_heads/latent_heads.h"
#include "ops/latent_heads/latent_rotary.h"

namespace temper::ops {

LatentRotary::Compose compose_latent_rotary;
LatentHeads::Compose compose_latent_heads;
Outline<LatentHeads> latent_heads_outline();

}  // namespace temper::ops
