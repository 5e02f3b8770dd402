#include "quant/number_format.h"

namespace temper::quant {

// The block formats of OCP Microscaling Formats, 2023.
void register_mx() {
  formats().add("mxfp8", {kE4M3, Scaling::kPowersOfTwo, 32});
  formats().add("mxfp8_e5m2", {kE5M2, Scaling::kPowersOfTwo, 32});
  formats().add("mxfp6", {kE3M2, Scaling::kPowersOfTwo, 32});
  formats().add("mxfp6_e2m3", {kE2M3, Scaling::kPowersOfTwo, 32});
  formats().add("mxfp4", {kE2M1, Scaling::kPowersOfTwo, 32});
  formats().add("mxint8", {kInt8Of64ths, Scaling::kPowersOfTwo, 32});
}

}  // namespace temper::quant
