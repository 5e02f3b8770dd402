#!/usr/bin/env bash
# test_both_ways.sh [PRESET]: the build of a machine without a CUDA compiler, and where there is one that of a machine
# without the headers of cuDNN's front end: configured, built as far as the program and the tests of what is registered,
# tried, and what is missing must be told. In the folder of the usual build, which keeps what it compiled and is
# configured as before at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release} folder=build/${1:-release}
tests=(test_backends test_ops test_base test_device)

restore() { cmake --preset "$preset" -DTEMPER_WITHOUT= >/dev/null; }
trap restore EXIT

try_without() {
  local package=$1 room=$2 said=$3
  echo "== without $package"
  TEMPER_CMAKE_ARGUMENTS=-DTEMPER_WITHOUT=$package tools/build.sh "$preset" temper | tee "$folder/without.log"
  grep -q "^left out of this build: $room: $said" "$folder/without.log" ||
    { echo "the build does not say that it left out $room: $said"; exit 1; }
  "$folder/temper" doctor | grep -E "^left out +.*$room.*$said" ||
    { echo "temper doctor does not say that $room is left out: $said"; exit 1; }
  cmake --build "$folder" -j "${JOBS:-$(nproc)}" --target "${tests[@]}"
  "$folder/test_backends" --gtest_brief=1 --gtest_filter='RequiredKernels.*:Hopper*'
  "$folder/test_ops" --gtest_brief=1 --gtest_filter='Selection.*:Resolve.*:Shortfalls.*:Documentation.*'
  "$folder/test_base" --gtest_brief=1 --gtest_filter='Rooms.*'
  "$folder/test_device" --gtest_brief=1 --gtest_filter='Facts.*'
}

try_without nvcc backends/cuda "configured without nvcc"
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  try_without CudnnFrontend backends/cudnn "configured without CudnnFrontend"
  # What such a build says of an H200, which need not be here.
  "$folder/temper" ops --hardware cuda-sm90 --dtype bfloat16 | grep -A3 'attn_implementation' |
    grep -q "NOT THE BEST for this hardware, that is hopper" ||
    { echo "temper ops does not say that attention is not the best"; exit 1; }
fi
