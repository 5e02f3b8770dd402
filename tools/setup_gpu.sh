#!/usr/bin/env bash
# Fetches what the GPU rooms need beyond the CUDA toolkit and cuDNN: the headers of cuDNN's front end, from its wheel
# into .deps. Says nothing when they are there. --if-possible: nothing to do without a CUDA compiler, and what cannot be
# fetched is a warning: the build leaves out what needs it, and says so at its end.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --if-possible ]; then
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -n "${CUDACXX:-}" ] || exit 0
  tools/setup_gpu.sh || echo "warning: the headers of cuDNN's front end cannot be fetched; kernels that need cuDNN are left out"
  exit 0
fi
version=1.32.0
sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
target=.deps/cudnn_frontend
[ -f "$target/$version" ] && exit 0

echo "fetching the headers of nvidia-cudnn-frontend $version"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tools/fetch_wheel.sh nvidia-cudnn-frontend "$version" "$sha256" "$scratch"
rm -rf "$target"
mkdir -p "$target"
python3 - "$scratch"/*.whl "$target" <<'PYTHON'
import sys
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
touch "$target/$version"
