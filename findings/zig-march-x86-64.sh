#!/usr/bin/env bash
# Expected: `zig cc`, which takes Clang's arguments, takes -march=x86-64, the oldest of Clang's and GCC's names for x86-64.
# Seen: it reads the name up to the hyphen, and knows no processor x86. -march=x86_64 it knows, which GCC does not.
# Versions: ziglang 0.17.1, 2026-11-28
# So: hatch_build.py compiles for k8, which all three know, and the image's build ends where a library is missing.
set -euo pipefail
source "$(dirname "$0")/support/install.sh"
packages ziglang==0.17.1

echo 'int one(void) { return 1; }' >one.c
for name in x86-64 x86_64 k8; do
  if venv/bin/python -m ziglang cc -shared -fPIC -target x86_64-linux-gnu "-march=$name" one.c -o one.so 2>problem; then
    echo "$name: compiled"
  else
    echo "$name: $(grep '^error' problem)"
  fi
done | tee output
diff - output <<'SEEN'
x86-64: error: unknown CPU: 'x86'
x86_64: compiled
k8: compiled
SEEN
