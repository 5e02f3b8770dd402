#!/usr/bin/env bash
# Puts the program of build/release and the libraries it needs into one folder that runs where it is copied to:
# build/bundle/temper-VERSION-linux-ARCHITECTURE. Of the system it needs the C library, of this age or later; CUDA's
# libraries and the driver are found at run time and never copied. With --bench the benchmarks come along (make bench), and
# all of it as one file, for a machine with a GPU where nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/release/temper
name=temper-$("$program" --version | cut -d' ' -f2)-linux-$(uname -m)
target=build/bundle/$name
rm -rf "$target"
mkdir -p "$target/lib" "$target/licences"
cmake --install build/release --prefix "$PWD/$target" --strip >/dev/null
programs=("$program")
if [ "${1:-}" = --bench ]; then
  for bench in build/release/bench/temper_bench_*; do
    install -s "$bench" "$target/bin"
    programs+=("$bench")
  done
fi

# The Debian package that a file came from; where /lib is a link to /usr/lib both names are tried.
package_of() {
  local path=$1 found
  for path in "$1" "$(readlink -f "$1")" "/usr$1" "${1#/usr}" "$(readlink -f "$1" | sed 's,^/usr,,')"; do
    if found=$(dpkg-query -S "$path" 2>/dev/null); then
      found=${found%%: *}
      echo "${found%%:*}"
      return
    fi
  done
  echo "tools/bundle.sh: $1 belongs to no Debian package, so its licence is not known" >&2
  return 1
}

packages=(libcli11-dev) # headers that are compiled in
while read -r library path; do
  case $library in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | ld-linux*) continue ;;
    libcuda.so.* | libnvidia-*) echo "tools/bundle.sh: $library is the driver's and must not be linked" >&2; exit 1 ;;
  esac
  cp -L "$path" "$target/lib/$library"
  chmod 644 "$target/lib/$library"
  if [[ $path == "$PWD"/.deps/arrow/* ]]; then
    cat .deps/arrow/licences/* >"$target/licences/arrow"
    continue
  fi
  packages+=("$(package_of "$path")")
done < <(ldd "${programs[@]}" | awk '$2 == "=>" { print $1, $3 }' | sort -u)
for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
  cp -L "/usr/share/doc/$package/copyright" "$target/licences/$package"
done

if [ -d .deps/cudnn_frontend/include ]; then
  notices=$(grep -rhoE 'SPDX-(FileCopyrightText|License-Identifier): .*' .deps/cudnn_frontend/include | sort -u)
  printf '%s\n\nMIT: the same terms as in libyaml-cpp0.7. Apache-2.0: as LICENSE.\n' "$notices" \
    >"$target/licences/cudnn-frontend"
fi

cp LICENSE "$target/LICENSE"
cat >"$target/README" <<TEXT
bin/temper doctor                                # what this machine can do; NVIDIA GPUs, cuBLASLt and cuDNN among it
bin/temper train run.yaml --device cuda          # fine-tune; --help lists every key
bin/temper generate MODEL -p "Once upon a time"  # MODEL is a Hugging Face folder

Needs glibc $(ldd --version | sed -n '1s/.* //p') or later. GPUs need NVIDIA's driver, cuBLASLt and cuDNN 9, which are
searched for as the system does and in /usr/local/cuda. licences/ has those of what is in lib/ and of what is compiled
in; a build with GPU rooms also contains NVIDIA's CUDA runtime (CUDA Toolkit EULA) and the headers of cuDNN's front end.
TEXT
echo "$target: $(du -sm "$target" | cut -f1) MiB, of it libraries $(du -sm "$target/lib" | cut -f1) MiB"
if [ "${1:-}" = --bench ]; then
  # The programs share most of their code: a dictionary that holds two of them keeps it once.
  XZ_OPT=--lzma2=preset=6,dict=128MiB tar -C build/bundle -cJf "$target-bench.tar.xz" "$name"
  echo "$target-bench.tar.xz: $(du -sm "$target-bench.tar.xz" | cut -f1) MiB"
fi
