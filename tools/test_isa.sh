#!/usr/bin/env bash
# The tests of ops, backends and training as processors with less than this one run them: under the limits SSE4.1, AVX2
# and AVX-512 (device/cpu_features.h; what the processor lacks itself is skipped), and some under an emulated processor
# of 2008, which would stop at an instruction that it does not know. --short: a part of each, as CI does.
set -euo pipefail
build=$(realpath "${1:?usage: test_isa.sh BUILD-FOLDER [--short]}")
short=${2:-}
cd "$(dirname "$0")/.."
[ "$(uname -m)" = x86_64 ] || { echo "make isa: nothing to limit on $(uname -m)"; exit 0; }
tools/setup.sh --isa

limits=(SSE41 AVX2)
tests='^test_(ops|backends|training|parity)\.'
emulated='Tile.*:Product.*:Dtypes/Onednn.*:Dtypes/Simd.*'
if [ -n "$short" ]; then
  tests='^test_(backends\.(Tile|Product|Dtypes/Onednn|Peak)|training\.(Threads|Trainer)|ops\.(Linear|RmsNorm|CrossEntropy))'
  emulated='Tile.ByOneDnn:Dtypes/Simd.RmsNorm*:Dtypes/Onednn.LinearWithoutRows/*'
elif grep -qw avx512f /proc/cpuinfo; then
  limits+=(AVX512_CORE)
  grep -qw amx_bf16 /proc/cpuinfo && limits+=(AVX512_CORE_BF16)
fi

for limit in "${limits[@]}"; do
  echo "== ONEDNN_MAX_CPU_ISA=$limit"
  (cd "$build" && ONEDNN_MAX_CPU_ISA=$limit OMP_WAIT_POLICY=passive \
    ctest --output-on-failure -j "$(nproc)" -R "$tests" | grep -vE '^ *[0-9]+/[0-9]+ Test|^ +Start ')
done
# Westmere's successors have more than SSE4.1; Nehalem lacks AES, too, so that Highway takes SSSE3.
echo "== emulated: Nehalem"
OMP_WAIT_POLICY=passive qemu-x86_64 -cpu Nehalem "$build/test_backends" --gtest_brief=1 --gtest_filter="$emulated"
