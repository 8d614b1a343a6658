#!/bin/sh
# The plans of the examples are the ones that were looked at and found right (tests/golden/*.plan). What
# depends on the machine, the bound and the prediction, is left out. `check_golden.sh dagrun --write`
# writes them anew: read the difference before you commit it.
set -u
dagrun=$1
bad=0
for model in examples/*.yaml; do
    golden=tests/golden/$(basename "$model" .yaml).plan
    plan=$("$dagrun" --plan --threads 2 "$model" | sed -e '/^bound /d' -e '/^predicted /d')
    if [ "${2:-}" = --write ]; then
        printf '%s\n' "$plan" >"$golden"
    elif [ ! -f "$golden" ]; then
        echo "$golden is missing"
        bad=1
    elif ! printf '%s\n' "$plan" | diff -u "$golden" -; then
        echo "$model gives another plan than $golden"
        bad=1
    fi
done
[ $bad = 0 ] && echo "golden plans: ok"
exit $bad
