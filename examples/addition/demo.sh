#!/usr/bin/env bash
# The demo: a small Qwen3 with random weights learns to add two-digit numbers asked as chat messages.
set -euo pipefail
temper=${1:?usage: demo.sh PATH-OF-TEMPER}
here=$(dirname "$0")
rm -rf build/demo runs/addition
python3 "$here/prepare.py" build/demo
"$temper" init build/demo/qwen3-tiny build/demo/model
"$temper" train "$here/run.yaml"
echo
echo "A conversation with the trained model (temper chat runs/addition/model):"
for question in "What is 47 + 38?" "What is 91 + 19?" "What is 64 + 71?"; do
  echo "  > $question"
  echo "  $(echo "$question" | "$temper" chat runs/addition/model --greedy 2>/dev/null)"
done
echo
echo "summary (runs/addition/summary.json):"
cat runs/addition/summary.json
echo "checkpoint: runs/addition/model   loss curve: runs/addition/loss.svg"
