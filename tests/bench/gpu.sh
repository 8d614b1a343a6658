#!/bin/sh
# Training examples/segment_frozen.yaml on a GPU: dagrun and PyTorch's CUDA graph in turns, a short table last.
#   sh tests/bench/gpu.sh [BATCH [ROUNDS]]      DAGRUN=path of the binary, STEPS=500, PRECISIONS="fp32 tf32 bf16"
cd "$(dirname "$0")/../.." || exit 1
batch=${1:-64}
rounds=${2:-3}
steps=${STEPS:-500}
precisions=${PRECISIONS:-fp32 tf32 bf16}
dagrun=${DAGRUN:-build/dagrun}
lines=$(mktemp) || exit 1
trap 'rm -f "$lines"' EXIT

# Where the CUDA libraries are not installed, those that PyTorch brings.
site=$(python3 -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))') || exit 1
libraries=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$site/nvidia/cu13/lib

ours() {
    LD_LIBRARY_PATH=$libraries "$dagrun" --bench examples/segment_frozen.yaml --device cuda --set "data.batch=$batch" \
        --set "precision=$1" --steps "$steps" --json | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)))' >>"$lines"
}
peer() {
    python3 tests/bench/host_cost.py --batch "$batch" --steps "$steps" --json "$@" >>"$lines"
}

round=0
while [ "$round" -lt "$rounds" ]; do
    for precision in $precisions; do
        ours "$precision"
        peer --precision "$precision"
    done
    round=$((round + 1))
done

python3 - "$lines" "$batch" <<'PY'
import json, statistics, sys
runs = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    runs.setdefault(r.get("peer") or "dagrun, " + r["precision"], []).append(r)
print("segment_frozen, batch %s, median of %d rounds" % (sys.argv[2], max(map(len, runs.values()), default=0)))
print("%-22s %10s %10s %14s" % ("", "steps/s", "median ms", "host us a step"))
def middle(rs, key):
    return statistics.median([r[key] for r in rs if r.get(key) is not None] or [float("nan")])
for name, rs in runs.items():
    print("%-22s %10.1f %10.3f %14.1f" % (name, middle(rs, "steps_per_s"), 1e3 * middle(rs, "median"), middle(rs, "host_us_per_step")))
PY
