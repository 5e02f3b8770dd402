#!/usr/bin/env bash
# run.sh TEMPER [SCALE]: all tortures, one after the other; SCALE multiplies how often each is tried (1: about an hour).
# JOBS (all cores) is how many are tried at the same time; of those with several ranks a quarter.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
temper=$(realpath "$1") scale=${2:-1} failed=0
jobs=${JOBS:-$(nproc)}
of_ranks=$(((jobs + 3) / 4))
times() { echo $(($1 * scale)); }
run() {
  echo "== $*"
  python3 "$here/$1" "$temper" "${@:2}" || failed=1
}
run limits.py --jobs "$jobs" --sizes "$(times 20)"
run signals.py --jobs "$of_ranks" --moments "$(times 40)"
run kills.py --jobs "$of_ranks" --kills "$(times 1000)"
run failures.py --jobs "$jobs" --samples "$(times 25)"

disk=(failures.py --kinds disk --every 1 --errors "EIO,ENOSPC" --runs "sft,asynchronous")
run "${disk[@]}" --jobs "$jobs"
run "${disk[@]}" --jobs "$of_ranks" --ranks 2 --manners once
exit $failed
