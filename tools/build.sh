#!/usr/bin/env bash
# build.sh PRESET [TARGET]: configures and builds build/PRESET, with JOBS compilers at once, and says at its end what the
# build left out and what would bring it.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 target=${2:-all} folder=build/$1
jobs=${JOBS:-$(nproc)}
echo "configuring $folder"
mkdir -p "$folder"
if ! cmake --preset "$preset" ${TEMPER_CMAKE_ARGUMENTS:-} >"$folder/configure.log" 2>&1; then
  cat "$folder/configure.log"
  exit 1
fi
minutes=12
[ "$target" != temper ] || minutes=6
[ -x "$folder/temper" ] || echo "building $target for the first time: on two cores about $minutes minutes, with code for GPUs 4 more"
cmake --build "$folder" -j "$jobs" --target "$target"
[ ! -s "$folder/left_out.txt" ] || sed 's/^/left out of this build: /' "$folder/left_out.txt"
