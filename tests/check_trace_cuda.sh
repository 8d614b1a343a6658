#!/bin/sh
# On a GPU: a trace by CUPTI has every node of every step, whole blocks from the captured graph, nothing dropped.
# Skips where there is no GPU.
dagrun=${1:-build/dagrun}
model=examples/segment_frozen.yaml
"$dagrun" --device cuda --check "$model" >/dev/null 2>&1
if [ $? -eq 3 ]; then
    echo "cuda trace: skipped: no GPU"
    exit 0
fi
if ! command -v python3 >/dev/null; then
    echo "cuda trace: skipped: no python3"
    exit 0
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$dagrun" --device cuda --plan --json "$model" >"$folder/plan.json" || exit 1
"$dagrun" --device cuda --bench --steps 30 --json --trace "$folder/trace.json" "$model" >"$folder/bench.json" \
    2>"$folder/said"
code=$?
cat "$folder/said"
[ "$code" -eq 0 ] || exit 1
if grep -q "by CUDA events" "$folder/said"; then
    echo "cuda trace: skipped: CUPTI cannot be used here"
    exit 0
fi
python3 - "$folder" <<'PY'
import collections, json, sys
read = lambda name: json.load(open(sys.argv[1] + "/" + name))
plan, trace, bench = read("plan.json"), read("trace.json"), read("bench.json")
steps, ways = collections.defaultdict(set), collections.Counter()
end = {}
wrong = []
for e in trace["traceEvents"]:
    if e["ph"] != "X":
        continue
    a = e["args"]
    steps[e["name"]].add(a.get("step", -1))
    ways[a["from"]] += 1
    if e["ts"] < end.get(e["tid"], 0) - 0.5 and a["from"] == "captured graph":
        wrong.append("'%s' overlaps in row %d at %f us" % (e["name"], e["tid"], e["ts"]))
    end[e["tid"]] = max(end.get(e["tid"], 0), e["ts"] + e["dur"])
total = max(max(s) for s in steps.values()) + 1
for n in plan["plan"]["nodes"]:
    missing = set(range(total)) - steps[n["name"]]
    if missing or -1 in steps[n["name"]]:
        wrong.append("'%s': %d of %d steps are missing" % (n["name"], len(missing), total))
if trace["otherData"]["dropped"]:
    wrong.append("%d records dropped" % trace["otherData"]["dropped"])
if not ways["captured graph"] or not bench["trace"]["blocks"]:
    wrong.append("no record came from the captured graph")
print("cuda trace: %d steps, %s; %s" % (total, dict(ways), bench["trace"]))
print("\n".join(wrong[:20]))
sys.exit(bool(wrong))
PY
