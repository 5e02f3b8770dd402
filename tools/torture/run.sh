#!/usr/bin/env bash
# run.sh TEMPER [SCALE]: all tortures, one after the other; SCALE multiplies how often each is tried (1: about an hour).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
temper=$(realpath "$1") scale=${2:-1} failed=0
times() { echo $(($1 * scale)); }
run() {
  echo "== $*"
  python3 "$here/$1" "${@:2}" || failed=1
}
run limits.py "$temper" --sizes "$(times 20)"
run signals.py "$temper" --moments "$(times 40)"
run kills.py "$temper" --kills "$(times 1000)"
run failures.py "$temper" --samples "$(times 25)"
run failures.py "$temper" --samples "$(times 10)" --ranks 2 --kinds disk --runs sft,asynchronous
exit $failed
