#!/usr/bin/env bash
# Fetches what the room for Parquet needs where Arrow's C++ libraries are not installed: headers and libraries from
# pyarrow's wheel, into .deps. Says nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=26.0.1
sha256=39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c
target=.deps/arrow
[ -f "$target/$version" ] && exit 0

if [ "$(uname -m)" != x86_64 ]; then
  echo "No Arrow libraries are known here for $(uname -m). Please install those of your system (Arrow and Parquet for C++)."
  exit 1
fi
echo "fetching the libraries of pyarrow $version"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tools/fetch_wheel.sh pyarrow "$version" "$sha256" "$scratch"
rm -rf "$target"
mkdir -p "$target"
python3 - "$scratch"/*.whl "$target" <<'PYTHON'
import pathlib
import sys
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
target = pathlib.Path(sys.argv[2])
places = {"pyarrow/include/": "include/", "pyarrow/libarrow.so.": "lib/libarrow.so.",
          "pyarrow/libparquet.so.": "lib/libparquet.so."}
for name in wheel.namelist():
    place = next((to + name[len(start):] for start, to in places.items() if name.startswith(start)), None)
    if "/licenses/" in name:
        place = "licences/" + pathlib.Path(name).name
    if place is None or name.endswith("/"):
        continue
    path = target / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wheel.read(name))
PYTHON
touch "$target/$version"
