#!/usr/bin/env bash
# test_both_ways.sh [PRESET]: the build of a machine without a CUDA compiler, and where there is one that of a machine
# without the headers of cuDNN's front end, each in a folder of its own (build/without_PACKAGE): configured, built as far as
# the program and the tests of what is registered, tried, and what is missing must be reported. An nvcc that does not work is
# taken as missing. After a build of the same preset (release unless another is named) ccache has nearly all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
tests=(test_backends test_ops test_base test_device)
suites='^test_(backends\.Hopper|ops\.(RequiredKernels|Selection|Resolve|Shortfalls|Documentation)$|base\.Rooms|device\.Facts)'

try_without() {
  local package=$1 room=$2 said="configured without $1" folder=build/without_$1
  echo "== without $package"
  cmake --preset "$preset" -B "$folder" -DTEMPER_WITHOUT="$package" >/dev/null
  grep "^$room: $said" "$folder/left_out.txt" ||
    { echo "the build does not say that it leaves out $room: $said"; exit 1; }
  cmake --build "$folder" -j "${JOBS:-$(nproc)}" --target temper "${tests[@]}"
  "$folder/temper" doctor | grep -E "^left out +.*$room.*$said" ||
    { echo "temper doctor does not say that $room is left out: $said"; exit 1; }
  ctest --test-dir "$folder" --output-on-failure -R "$suites" | grep -vE '^ *[0-9]+/[0-9]+ Test|^ +Start '
}

# An nvcc that fails is as good as none, and is named.
try_broken_nvcc() {
  local folder=build/broken_nvcc
  echo "== with an nvcc that does not work"
  rm -rf "$folder"
  mkdir -p "$folder/first_on_path"
  printf '#!/bin/sh\nexit 1\n' >"$folder/first_on_path/nvcc"
  chmod +x "$folder/first_on_path/nvcc"
  env -u CUDACXX PATH="$PWD/$folder/first_on_path:$PATH" cmake --preset "$preset" -B "$folder" >/dev/null ||
    { echo "a build with an nvcc that does not work cannot be configured"; exit 1; }
  grep -q "^backends/cuda: the CUDA compiler .*/first_on_path/nvcc does not compile, .*make build$" "$folder/left_out.txt" ||
    { echo "the build does not say that nvcc does not work"; exit 1; }
}

try_broken_nvcc
try_without nvcc backends/cuda
build/without_nvcc/temper ops --hardware cuda-sm90 | grep -A3 'attn_implementation' |
  grep -q "NOT THE BEST for this hardware: the kernels for this hardware are not in this build" ||
  { echo "temper ops does not say that the kernels of GPUs are left out"; exit 1; }
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  try_without CudnnFrontend backends/cudnn
  # What such a build says of an H200, which need not be here.
  build/without_CudnnFrontend/temper ops --hardware cuda-sm90 --dtype bfloat16 | grep -A3 'attn_implementation' |
    grep -q "NOT THE BEST for this hardware, that is hopper" ||
    { echo "temper ops does not say that attention is not the best"; exit 1; }
  # What cuDNN refuses itself is as good as it gets.
  build/without_CudnnFrontend/temper ops tests/goldens/gpt_oss_trained --hardware cuda-sm90 --dtype bfloat16 \
    --strict-kernels >/dev/null
fi
