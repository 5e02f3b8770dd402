#!/usr/bin/env bash
# Formats every C++ file; with --check only lists those that are not formatted and ends with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = "--check" ]; then
  git ls-files '*.cpp' '*.h' | xargs clang-format --dry-run -Werror
else
  git ls-files '*.cpp' '*.h' | xargs clang-format -i
fi
