#!/bin/sh
# What only a GPU can prove, on a machine that has one: every op in every precision against its reference, runs under every
# schedule, convolutions of random shapes, and (with SANITIZE=1) the same under compute-sanitizer. A line each, last the
# number that failed.
#   sh tests/gpu.sh [BUILD [SEED]]      LIMIT=300 seconds for each, LOGS=folder

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
    said=$(grep -E 'passed,|wrong;|ERROR SUMMARY|RACECHECK SUMMARY|failed$' "$LOGS/$name.txt" | tail -n 1)
    printf '%-20s %-12s %4s s  %s\n' "$name" "$verdict" $(($(date +%s) - start)) "$said"
    [ $rc = 0 ] || grep -E 'FAILED|========= (Invalid|Error)' "$LOGS/$name.txt" | head -n 5 | cut -c1-200
}
if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit 0
fi

build=$(cd "${1:-$(dirname "$0")/../build}" && pwd) || exit 2
seed=${2:-1}
programs=$build/tests
export LIMIT="${LIMIT:-300}" OPENBLAS_NUM_THREADS=1
export LOGS="${LOGS:-$(mktemp -d)}"
[ -x "$programs/main_cuda_ops" ] || { echo "no $programs/main_cuda_ops: build first" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 2

# A job a line: NAME COMMAND...
jobs() {
    ops="env DR_CUDA_OPS_PART"
    part=0
    while [ $part -lt 4 ]; do
        for t in f32 tf32 f16 bf16; do
            case $t in
            f32) mode= ;;
            tf32) mode=DR_CUDA_OPS_TF32=1 ;;
            *) mode=DR_CUDA_OPS_HALF=$t ;;
            esac
            echo "ops_${t}_$part $ops=$part/4 $mode $programs/main_cuda_ops $seed"
            if [ -n "${SANITIZE:-}" ]; then
                echo "memcheck_${t}_$part $ops=$part/4 DR_CUDA_OPS_EXACT=1 DR_CUDA_OPS_MOST=100000 $mode compute-sanitizer --error-exitcode 1 $programs/main_cuda_ops $seed"
                echo "racecheck_${t}_$part $ops=$part/4 DR_CUDA_OPS_MOST=20000 $mode compute-sanitizer --tool racecheck --error-exitcode 1 $programs/main_cuda_ops $seed"
            fi
        done
        part=$((part + 1))
    done
    echo "conv $programs/main_cuda_conv 2000 $seed"
    echo "noise $programs/main_cuda_conv noise 1000 $seed"
    if [ -n "${SANITIZE:-}" ]; then
        echo "memcheck_conv compute-sanitizer --error-exitcode 1 $programs/main_cuda_conv 40 $seed"
        echo "racecheck_conv compute-sanitizer --tool racecheck --error-exitcode 1 $programs/main_cuda_conv 20 $seed"
    fi
}
table=$LOGS/table
jobs | tr -s ' ' | xargs -P "$(nproc)" -L 1 sh tests/gpu.sh --one | tee "$table"
# Alone: it measures time, and needs the card's memory.
one run "$programs/main_cuda_run" | tee -a "$table"
one large "$programs/main_cuda_large" | tee -a "$table"
failed=$(grep -c 'FAILED (' "$table")
echo "$failed failed; logs in $LOGS"
[ "$failed" = 0 ]
