#!/bin/sh
# Sets up a fresh Debian/Ubuntu machine, builds dagrun (release) and passes all tests.
set -eu
cd "$(dirname "$0")/.."
sh examples/setup.sh tests
[ -f build/build.ninja ] || cmake --preset release -G Ninja
cmake --build --preset release
exec ctest --test-dir build --output-on-failure -j 2
