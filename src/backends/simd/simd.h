#pragma once
#include "ops/adamw/adamw.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/global_norm/global_norm.h"
ops::Kernel<ops::LatentHeads> latent_heads_kernel();
ops::Kernel<ops::LatentRotary> latent_rotary_kernel();
