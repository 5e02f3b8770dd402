#!/usr/bin/env bash
# sanitize_gpu.sh PROGRAM [SUITE...]: compute-sanitizer's memcheck and racecheck over test_ops or test_primitives on a machine
# with an NVIDIA GPU, suite by suite, each with a limit of SECONDS_EACH (120). All suites with kernels for GPUs, unless some are
# named. Every tensor is an allocation of its own then (TEMPER_GPU_POOL=separate), so that memory next to it is out of
# bounds. racecheck looks at Temper's kernels only. `eager` is left out: its primitives are test_primitives'. Ends with a
# table; the exit code is 1 when anything was found. COMPUTE_SANITIZER names the program: that of CUDA 13.0 loses the GPU
# in cuBLASLt's kernels under racecheck, whichever are checked; 13.5's does not (PyPI: nvidia-cuda-sanitizer-api).
set -uo pipefail
program=${1:?usage: sanitize_gpu.sh PROGRAM-OF-TEST_OPS [SUITE...]}
shift
limit=${SECONDS_EACH:-120}
tools=${TOOLS:-memcheck racecheck}
export TEMPER_GPU_POOL=separate TEMPER_TEST_LEAVE_OUT=${TEMPER_TEST_LEAVE_OUT:-eager} OMP_WAIT_POLICY=passive
PATH=$PATH:/usr/local/cuda/bin
sanitizer=${COMPUTE_SANITIZER:-compute-sanitizer}
command -v "$sanitizer" >/dev/null || { echo "sanitize_gpu.sh: there is no $sanitizer; it comes with the CUDA toolkit" >&2; exit 2; }
no_kernels='^(Documentation|Measure|Resolve|Selection|Sampler)$'
suites=("$@")
[ $# -gt 0 ] || mapfile -t suites < <("$program" --gtest_list_tests | sed -n 's/^\([A-Za-z].*\)\.$/\1/p' | grep -vE "$no_kernels")

bad=0 table=
for tool in $tools; do
  options=(--tool "$tool" --error-exitcode 99)
  [ "$tool" = racecheck ] && "$sanitizer" --help | grep -q -- --kernel-name && options+=(--kernel-name kns=temper --kernel-name-exclude kns=cudnn)
  for suite in "${suites[@]}"; do
    log=$(mktemp)
    start=$SECONDS
    timeout "$limit" "$sanitizer" "${options[@]}" "$program" --gtest_filter="$suite.*" >"$log" 2>&1
    code=$?
    case $code in
      0) found=clean ;;
      124) found="not finished in $limit s" ;;
      *) found="exit code $code" ;;
    esac
    if [ $code != 0 ]; then
      bad=1
      grep -E '^=========|FAILED' "$log" | head -30
    fi
    table+=$(printf '%-10s %-18s %4d s  %s' "$tool" "$suite" $((SECONDS - start)) "$found")$'\n'
    rm -f "$log"
  done
done
printf '%s' "$table"
exit $bad
