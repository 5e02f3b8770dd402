#!/usr/bin/env bash
# fuzz.sh TARGET [RUNS [MINUTES]]: runs a fuzz target from its corpus; -1 runs and 0 minutes are no limit. What it finds
# new stays in build/fuzz/corpus/TARGET; an input that crashes, hangs or takes too much memory in build/fuzz/found.
# fuzz.sh --merge TARGET puts a minimal corpus that covers all of this into tests/fuzz/corpus/TARGET.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
merge=0
[ "$1" = "--merge" ] && merge=1 && shift
target=$1 runs=${2:--1} minutes=${3:-0}
kept=tests/fuzz/corpus/$target.txt files=build/fuzz/kept/$target new=build/fuzz/corpus/$target
rm -rf "$files"
mkdir -p "$files" "$new" build/fuzz/found
tools/fuzz_corpus.py unpack "$kept" "$files"
# The sanitizer keeps freed memory for a while; it counts against the limit.
export ASAN_OPTIONS=quarantine_size_mb=64:malloc_context_size=4
options=(-print_funcs=0 -detect_leaks=0 -timeout=1 -rss_limit_mb=1024 -max_len=4096 -artifact_prefix=build/fuzz/found/"$target"-)
[ -f "tests/fuzz/$target.dict" ] && options+=(-dict="tests/fuzz/$target.dict")
seeds=("$files")
[ "$target" = template ] && seeds+=(tests/templates/sources)
if [ $merge = 1 ]; then
  small=$(mktemp -d)
  "build/fuzz/tests/fuzz/${target}_fuzz" "${options[@]}" -use_counters=0 -set_cover_merge=1 "$small" "${seeds[@]}" "$new"
  tools/fuzz_corpus.py pack "$small" "$kept"
  rm -r "$small"
else
  "build/fuzz/tests/fuzz/${target}_fuzz" "${options[@]}" -runs="$runs" -max_total_time=$((minutes * 60)) \
    -print_final_stats=1 "$new" "${seeds[@]}"
fi
