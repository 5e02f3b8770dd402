#!/usr/bin/env bash
# Proofs that are too slow for every change (.ci/run): all device code in full and for both architectures of GPUs, the
# benchmarks, tests on every kind of processor, states on every pair of meshes, runs that are killed at random, and
# the tortures (TEMPER_TORTURE times as many, 0: none; about two hours on 16 cores). Ends with 1 at the first that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/local/cuda/bin # where a toolkit is that is not on PATH
jobs=${JOBS:-$(nproc)}
build=build/release
begin=$SECONDS
step() { echo "== $1 (after $((SECONDS - begin)) s)"; }

step "the program, its tests and its benchmarks, with all device code in full"
make build PRESET=release
targets=(bench)
if command -v nvcc >/dev/null; then targets+=(temper_ampere); fi
cmake --build $build -j "$jobs" --target "${targets[@]}"
tools/test_bench.sh $build
if command -v nvcc >/dev/null; then
  python3 tools/device_code.py --record
  git diff --quiet -- tools/device_code.txt || echo "tools/device_code.txt has changed: commit it, and .ci/run need not compile this again"
fi

step "builds without nvcc, and without the headers of cuDNN's front end"
tools/test_both_ways.sh
step "every test, as on this processor"
make test PRESET=release
step "tests of ops, backends, training and parity on other processors"
make isa PRESET=release
step "checkpoints of every mesh read on every other"
TEMPER_ALL_STATE_PAIRS=1 $build/test_recipes --gtest_brief=1 --gtest_filter='*StateMeshes*'
step "plans and other proofs of every kind"
(cd $build && ctest --output-on-failure -j "$jobs" -L nightly)
step "what published chat templates leave out"
if [ -n "${TEMPER_TEMPLATES:-}" ]; then
  python3 tools/oracles/sweep_templates.py "$TEMPER_TEMPLATES"
else
  echo "left out: TEMPER_TEMPLATES names no folder of chat templates (CONTRIBUTING.md)"
fi
step "runs that are killed at random"
(cd $build && TEMPER_KILLS=${TEMPER_KILLS:-60} ctest --output-on-failure -R 'test_cli\.RandomKills$')
step "what may go wrong at random places of runs"
if [ "${TEMPER_TORTURE:-1}" -gt 0 ]; then
  tools/torture/run.sh $build/temper "${TEMPER_TORTURE:-1}"
else
  echo "left out: TEMPER_TORTURE is 0"
fi
step "everything passed"
