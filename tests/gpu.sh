#!/bin/sh
# What only a GPU can prove, on a machine that has one: every op in every precision against its reference, runs under every
# schedule, convolutions of random shapes, and (with SANITIZE=1) ops and convolutions under compute-sanitizer, small cases
# of each. A line each, under compute-sanitizer only what is not clean and sums; last the number that failed.
#   sh tests/gpu.sh [BUILD [SEED]]      LIMIT=300 seconds for each, LOGS=folder; SANITIZE=only leaves out the rest,
#                                       TOOL_LIMIT=60 seconds for each of its jobs, TOOL_CASES=40 of an op, TOOL_MOST=100000 bytes

# The variable that has main_cuda_ops compute in this precision.
mode() {
    case $1 in
    f32) ;;
    tf32) echo DR_CUDA_OPS_TF32=1 ;;
    *) echo "DR_CUDA_OPS_HALF=$1" ;;
    esac
}

# NAME COMMAND...: runs it, keeps its log, says how it ended.
one() {
    name=$1
    shift
    start=$(date +%s)
    timeout "$LIMIT" "$@" >"$LOGS/$name.txt" 2>&1
    rc=$?
    case $rc in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    *) verdict="FAILED ($rc)" ;;
    esac
    said=$(grep -E 'passed,|wrong;|failed$' "$LOGS/$name.txt" | tail -n 1)
    printf '%-20s %-12s %4s s  %s\n' "$name" "$verdict" $(($(date +%s) - start)) "$said"
    [ $rc = 0 ] || grep FAILED "$LOGS/$name.txt" | head -n 5 | cut -c1-200
}

# TOOL PRECISION PART OP...: some ops under a tool of compute-sanitizer; precision `conv`: main_cuda_conv with seed PART.
# The verdict is added to $LOGS/verdicts; only one that is not clean is told.
sanitized() {
    tool=$1 type=$2 part=$3 name=$1_$2_$4
    shift 3
    log=$LOGS/$name.txt
    start=$(date +%s)
    if [ "$type" = conv ]; then
        set -- "$PROGRAMS/main_cuda_conv" 3 "$part" 4000000
        name=$name$part log=$LOGS/${tool}_conv$part.txt
    else
        set -- "$PROGRAMS/main_cuda_ops" "$SEED" "$@"
    fi
    # shellcheck disable=SC2046 # no variable for f32
    env $(mode "$type") DR_CUDA_OPS_SANITIZE=1 "DR_CUDA_OPS_MOST=$TOOL_MOST" "DR_CUDA_OPS_PART=$part" timeout -k 5 "$TOOL_LIMIT" \
        compute-sanitizer --tool "$tool" --error-exitcode 1 --show-backtrace device "$@" >"$log" 2>&1
    rc=$?
    case $rc in
    0) verdict=clean && grep -q 'SUMMARY: 0 ' "$log" || verdict=dirty ;;
    77) verdict=skipped ;;
    124 | 137) verdict='cut' ;;
    *) verdict=dirty ;;
    esac
    seconds=$(($(date +%s) - start))
    cases=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p; s/^[0-9]* shapes, \([0-9]*\) plans.*/\1/p' "$log")
    echo "$tool $type $verdict ${cases:-0} $seconds $name" >>"$LOGS/verdicts"
    case $verdict in
    clean | skipped) return ;;
    esac
    shift
    said=$(grep -E '^FAILED|========= .*(Invalid|Error:|Warning:|Race|[Hh]azard|Program hit)' "$log" | head -n 1)
    printf '%s: %s after %s s (%s): %s\n' "$name" "$([ $verdict = cut ] && echo "cut off" || echo "not clean, $rc")" "$seconds" "$*" \
        "$said" | cut -c1-240
}

case ${1:-} in
--one) shift; one "$@"; exit 0 ;;
--sanitized) shift; sanitized "$@"; exit 0 ;;
esac

build=$(cd "${1:-$(dirname "$0")/../build}" && pwd) || exit 2
export SEED="${2:-1}" PROGRAMS="$build/tests"
export LIMIT="${LIMIT:-300}" TOOL_LIMIT="${TOOL_LIMIT:-60}" TOOL_MOST="${TOOL_MOST:-100000}" OPENBLAS_NUM_THREADS=1
export LOGS="${LOGS:-$(mktemp -d)}"
[ -x "$PROGRAMS/main_cuda_ops" ] || { echo "no $PROGRAMS/main_cuda_ops: build first" >&2; exit 2; }
[ -z "${SANITIZE:-}" ] || command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer in PATH" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 2
table=$LOGS/table verdicts=$LOGS/verdicts
: >"$table"
: >"$verdicts"

# A job a line: NAME COMMAND...
jobs() {
    part=0
    while [ $part -lt 4 ]; do
        for t in f32 tf32 f16 bf16; do
            echo "ops_${t}_$part env DR_CUDA_OPS_PART=$part/4 $(mode $t) $PROGRAMS/main_cuda_ops $SEED"
        done
        part=$((part + 1))
    done
    echo "conv $PROGRAMS/main_cuda_conv 2000 $SEED"
    echo "conv_f32 $PROGRAMS/main_cuda_conv_f32 1000 $SEED"
    echo "noise $PROGRAMS/main_cuda_conv noise 1000 $SEED"
}

# A job a line for `sanitized`, less the tool, the longest first: an op of many cases alone, of which it takes every n-th;
# ops of few cases together, for a process takes seconds to start. tf32 changes nothing for ops without products.
tool_jobs() {
    for i in 1 2 3 4 5 6; do
        echo "conv $((SEED * 100 + i)) conv"
    done
    for t in f32 tf32 f16 bf16; do
        # shellcheck disable=SC2046
        env $(mode $t) "DR_CUDA_OPS_MOST=$TOOL_MOST" "$PROGRAMS/main_cuda_ops" list "$SEED" >"$LOGS/list_$t" || echo "list_$t FAILED (list)" >>"$table"
        [ $t != tf32 ] || sed -i -n '/bgrad/d; /^conv/p; /^linear/p; /^matmul/p' "$LOGS/list_$t"
        awk -v type=$t -v take="${TOOL_CASES:-40}" -v seed="$SEED" '
            $2 >= take { n = int(($2 + take - 1) / take); print type, seed % n "/" n, $1; next }
            sum + $2 > 2 * take { line[++lines] = ops; ops = ""; sum = 0 }
            { ops = ops " " $1; sum += $2 }
            END { line[++lines] = ops; for (i = 1; i <= lines; i++) if (line[i] != "") print type, "0/1" line[i] }' "$LOGS/list_$t"
    done
}

sums() {
    awk '
        { n[$1 " " $2]++; v[$1 " " $2 " " $3]++; cases[$1 " " $2] += $4; if ($5 > most[$1 " " $2]) most[$1 " " $2] = $5 }
        END { for (k in n) printf "%-14s %3d jobs: %3d clean, %d not clean, %d cut off, %d skipped; %d cases, the longest %d s\n",
                  k, n[k], v[k " clean"], v[k " dirty"], v[k " cut"], v[k " skipped"], cases[k], most[k] }' "$verdicts" | sort
}

if [ "${SANITIZE:-}" != only ]; then
    jobs | tr -s ' ' | xargs -P "$(nproc)" -L 1 sh tests/gpu.sh --one | tee "$table"
    # Alone: it measures time, and needs the card's memory.
    one run "$PROGRAMS/main_cuda_run" | tee -a "$table"
    one large "$PROGRAMS/main_cuda_large" | tee -a "$table"
fi
if [ -n "${SANITIZE:-}" ]; then
    tool_jobs >"$LOGS/jobs"
    for tool in memcheck racecheck; do
        sed "s/^/$tool /" "$LOGS/jobs"
    done | xargs -P "$(nproc)" -L 1 sh tests/gpu.sh --sanitized
    sums
fi
failed=$(($(grep -c 'FAILED (' "$table") + $(grep -cE '^[^ ]* [^ ]* (dirty|cut) ' "$verdicts")))
echo "$failed failed; logs in $LOGS"
[ "$failed" = 0 ]
