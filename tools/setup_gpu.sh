#!/usr/bin/env bash
# Fetches what the GPU rooms need beyond the CUDA toolkit and cuDNN: the headers of cuDNN's front end, from its wheel
# into .deps. Says nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.32.0
sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
target=.deps/cudnn_frontend
[ -f "$target/$version" ] && exit 0

if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "pip is missing. Please install it and run the command again:"
  echo "  apt-get install --no-install-recommends python3-pip"
  exit 1
fi
echo "fetching the headers of nvidia-cudnn-frontend $version"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The same wheel for every Python: only its headers are used.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
  --python-version 311 --platform manylinux_2_28_x86_64 --dest "$scratch" "nvidia-cudnn-frontend==$version"
echo "$sha256  $(echo "$scratch"/*.whl)" | sha256sum --check --quiet
rm -rf "$target"
mkdir -p "$target"
python3 - "$scratch"/*.whl "$target" <<'PYTHON'
import sys
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
touch "$target/$version"
