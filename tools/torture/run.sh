#!/usr/bin/env bash
# run.sh TEMPER [SCALE]: all tortures, one after the other; SCALE multiplies how often each is tried (1: about two hours on 16 cores).
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
run keys.py --jobs "$jobs" --letters "$(times 1)" --values "$(times 1)"
run inputs.py --jobs "$jobs" --inputs "$(times 2000)"
run values.py --jobs "$jobs" --values "$(times 400)"
run damage.py --jobs "$jobs" --damages "$(times 10000)"
run gpu_memory.py --sizes "$(times 20)" --moments "$(times 20)"
run powercuts.py --jobs "$jobs" --cuts "$(times 200)"
run powercuts.py --jobs "$of_ranks" --cuts "$(times 40)" --ranks 2 --runs sft,asynchronous
run failures.py --jobs "$jobs" --samples "$(times 25)"
run failures.py --jobs "$jobs" --kinds memory --stacks 6 --runs "sft,grpo" --manners once
disk=(failures.py --kinds disk --every 1 --errors "EIO,ENOSPC" --runs "sft,asynchronous")
run "${disk[@]}" --jobs "$jobs"
run "${disk[@]}" --jobs "$of_ranks" --ranks 2 --manners once
run sockets.py --jobs "$jobs" --attacks "$(times 400)" --syncs "$(times 20)"
run exchange.py --jobs "$of_ranks" --syncs "$(times 500)" --runs "$(times 40)" --receivers "$(times 40)"
run rollouts.py --jobs "$of_ranks" --kills "$(times 60)" --programs "$(times 60)"
run starts.py --jobs "$of_ranks" --moments "$(times 300)"
run signals.py --jobs "$of_ranks" --moments "$(times 40)"
run kills.py --jobs "$of_ranks" --kills "$(times 1000)"
run hosts.py --jobs "$of_ranks" --times "$(times 4)"
run clocks.py --jobs "$of_ranks" --shifts "$(times 60)" --sleeps "$(times 12)"
run drift.py --jobs "$of_ranks" --changes "$(times 20)"
run soak.py --jobs "$of_ranks" --steps "$(times 20000)" --answers "$(times 1000000)" --syncs "$(times 1000)"
exit $failed
