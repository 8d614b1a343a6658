#!/bin/sh
# Which folder may include which: kernels nothing, graph nothing, ops and augment graph and kernels, scheduler all.
set -u
cd "$(dirname "$0")/.."
bad=0
check() { # folder, folders it may see
    for f in $(find "$1" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh'); do
        for inc in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
            case $inc in
            */*) top=${inc%%/*} ;;
            *) echo "$f: \"$inc\" is not root-relative"; bad=1; continue ;;
            esac
            case " $1 $2 " in
            *" $top "*) ;;
            *) echo "$f: $1 must not include $inc"; bad=1 ;;
            esac
            [ -f "$inc" ] || { echo "$f: no such file: $inc"; bad=1; }
        done
    done
}
check kernels ""
check graph ""
check ops "graph kernels augment"
check augment "graph kernels"
check scheduler "graph ops kernels augment"
for f in $(git ls-files 2>/dev/null | grep / | cut -d/ -f1 | sort -u); do
    case $f in
    graph | scheduler | ops | kernels | augment | examples | tests | .ci) ;;
    *) echo "unexpected folder at the top: $f"; bad=1 ;;
    esac
done
[ $bad = 0 ] && echo "include arrows: ok"
exit $bad
