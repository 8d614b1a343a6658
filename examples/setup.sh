#!/bin/sh
# Installs the Debian/Ubuntu packages that dagrun is built from, those that are missing only.
# `setup.sh tests` adds what the tests need. Needs root, or sudo, only if something is missing.
set -eu
packages="gcc cmake ninja-build pkg-config libyaml-dev libopenblas-pthread-dev libpthreadpool-dev librandom123-dev
libjansson-dev libturbojpeg0-dev libpng-dev zlib1g-dev libxxhash-dev"
[ "${1:-}" = tests ] && packages="$packages libcriterion-dev graphviz"
missing=
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
echo "installing:$missing" >&2
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "run as root: apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq || { echo "apt-get update failed" >&2; exit 1; }
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
    { echo "could not install:$missing" >&2; exit 1; }
