#!/usr/bin/env bash
# Runs the bundle as another user would: copied to another folder, with an empty environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$(find build/bundle -mindepth 1 -maxdepth 1 -name 'temper-*' -type d)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$source" "$scratch/elsewhere"
python3 examples/addition/prepare.py "$scratch" >/dev/null
temper=$scratch/elsewhere/bin/temper
repository=$PWD
cd /

fail() {
  echo "tools/test_bundle.sh: $1" >&2
  exit 1
}
while read -r library path; do
  case $library in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.*) ;;
    *) [[ $path == "$scratch"/elsewhere/* ]] || fail "$library comes from $path" ;;
  esac
done < <(env -i /usr/bin/ldd "$temper" | awk '$2 == "=>" { print $1, $3 }')
if grep -qF "$repository/" "$temper"; then fail "the program names the folder it was built in"; fi

env -i "$temper" --version
env -i "$temper" doctor >"$scratch/doctor"
grep '^gpu\|^cu' "$scratch/doctor"
env -i "$temper" init "$scratch/qwen3-tiny" "$scratch/model" >/dev/null
env -i "$temper" train --model.path "$scratch/model" --data.train "[$scratch/train.jsonl]" --data.max_length 64 \
  --train.steps 3 --output "$scratch/run" 2>"$scratch/log" || fail "training failed: $(cat "$scratch/log")"
[ -f "$scratch/run/model/model.safetensors" ] || fail "training made no model"
echo "the bundle runs by itself"
