#!/bin/sh
# rewrite.sh FROM TO: CUDA C as C++ that tests/emulated/cuda_runtime.h completes. Lines keep their numbers.
mkdir -p "$(dirname "$2")"
{ printf '#line 1 "%s"\n' "$1"; sed -z -E \
    -e 's/([^A-Za-z0-9_:])([A-Za-z0-9_:]+(<[^<>;]*>)?)([ \n]*)<<</\1EMULATED_KERNEL(\2)\4->*emulated::at(/g' \
    -e 's/<<</ ->*emulated::at(/g' -e 's/>>>\(/)(/g' \
    -e 's/extern __shared__ (__align__\([0-9]+\) )?([A-Za-z0-9_ ]+) ([a-z0-9]+)\[\];/EMULATED_SHARED(\2, \3);/g' "$1"; } >"$2"
