#!/usr/bin/env bash
# Installs what building and testing need: Debian packages only. As root or through sudo; elsewhere it prints
# what is missing and ends with 1.
set -euo pipefail
packages=(g++ cmake ninja-build make ccache pkg-config python3 libdnnl-dev libhwy-dev libfmt-dev libyaml-cpp-dev
          libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libjpeg62-turbo-dev libpng-dev
          libdeflate-dev libwebp-dev libgtest-dev libbenchmark-dev libopenmpi-dev openmpi-bin iproute2 libcurl4-openssl-dev libedit2)
[ "${1:-}" = "--check" ] && packages+=(clang-format clang-tidy)
[ "${1:-}" = "--isa" ] && packages+=(qemu-user)
[ "${1:-}" = "--fuzz" ] && packages+=(clang-14 libclang-rt-14-dev)

# For kernels on GPUs headers are fetched (setup_gpu.sh).
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing ${#missing[@]} packages: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "Neither root nor sudo without a password. Please install these packages and run the command again:"
    echo "  apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  sudo=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
