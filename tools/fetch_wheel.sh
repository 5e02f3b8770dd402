#!/usr/bin/env bash
# fetch_wheel.sh PACKAGE VERSION SHA256 FOLDER: downloads a wheel from PyPI into FOLDER and proves that it is the one that
# is meant. The same for every Python: only what is C++ is used.
set -euo pipefail
package=$1 version=$2 sha256=$3 folder=$4
if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "pip is missing. Please install it and run the command again:"
  echo "  apt-get install --no-install-recommends python3-pip"
  exit 1
fi
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
  --python-version 311 --platform manylinux_2_28_x86_64 --dest "$folder" "$package==$version"
echo "$sha256  $(echo "$folder"/*.whl)" | sha256sum --check --quiet
