#!/usr/bin/env bash
# Every benchmark of a build folder answers --help by its name and its options, and refuses an option that it does not have.
set -euo pipefail
build=${1:?usage: test_bench.sh BUILD-FOLDER}
count=0
for program in "$build"/bench/temper_bench_*; do
  name=$(basename "$program")
  if ! help=$("$program" --help) || ! grep -qE "^ +(mpirun .* )?$name( |$)" <<<"$help"; then
    echo "$name --help does not say how it is used: $help" >&2
    exit 1
  fi
  code=0
  said=$("$program" --no-such-option 2>&1) || code=$?
  if [ "$code" -ne 2 ] || ! grep -q -- "--no-such-option" <<<"$said"; then
    echo "$name --no-such-option ends with $code: $said" >&2
    exit 1
  fi
  count=$((count + 1))
done
[ "$count" -gt 0 ] || { echo "$build/bench has no benchmarks; build the target bench first" >&2; exit 1; }
echo "$count benchmarks answer --help"
