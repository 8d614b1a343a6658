#!/bin/sh
# Sets up a fresh Debian/Ubuntu machine, builds dagrun, and trains a network on real images:
#   sh examples/run.sh [MODEL.yaml] [options]      default: examples/digits.yaml
set -eu
model=${1:-}
[ $# -gt 0 ] && shift
case $model in
"") ;;
/*) ;;
*) model=$PWD/$model ;;
esac
cd "$(dirname "$0")/.."
sh examples/setup.sh
[ -f build/build.ninja ] || cmake --preset release -G Ninja >/dev/null
cmake --build --preset release --target dagrun >/dev/null || cmake --build --preset release --target dagrun
exec build/dagrun "${model:-examples/digits.yaml}" "$@"
