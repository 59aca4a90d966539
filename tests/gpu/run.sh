#!/usr/bin/env bash
# Runs the bundled tests on this machine's GPU and writes a result file.
#   ./run.sh RESULT.json [MODEL.gguf]
# Every op x variant x case against the oracle (LLS_LARGE=1: also those that need gigabytes); streams and graphs; the smallest case of each under compute-sanitizer memcheck and racecheck, where that tool is installed; the engine's
# tests; with a model, its golden logits and ids on the GPU, and the same text from the CPU and the GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
result=$(realpath -m "${1:?usage: run.sh RESULT.json [MODEL.gguf]}")
model=${2:-}
logs=$(mktemp -d)
failed=0
steps=()

step() { # name command...
  local name=$1 start=$SECONDS status=0
  shift
  "$@" >"$logs/$name.log" 2>&1 || status=$?
  [ "$status" = 0 ] || { failed=1; tail -n 40 "$logs/$name.log"; }
  local last
  last=$(grep -vE '^[[:space:]]*$' "$logs/$name.log" | tail -n 1 | tr -d '"\\')
  echo "$name: exit $status, $((SECONDS - start)) s: $last"
  steps+=("{\"step\": \"$name\", \"exit\": $status, \"seconds\": $((SECONDS - start)), \"last_line\": \"$last\"}")
}

same_text() { # the f32 path is exact on both sides
  local device prompt="Write one sentence about the sea."
  for device in cpu cuda; do
    "$here/llmspeed" generate -m "$model" --chat -p "$prompt" -n 48 --f32-activations --kv-dtype f32 --device $device --json >"$logs/$device.json" || return 1
  done
  python3 - "$logs/cpu.json" "$logs/cuda.json" <<'PY'
import json, sys
cpu, cuda = (json.load(open(p)) for p in sys.argv[1:3])
print("same text on both: " + cpu["text"].strip().replace("\n", " ") if cpu["text"] == cuda["text"] else f"cpu:  {cpu['text']!r}\ncuda: {cuda['text']!r}")
sys.exit(cpu["text"] != cuda["text"] or not cpu["text"].strip())
PY
}

step ops "$here/op_test" --device cuda --json "$logs/ops.json" ${LLS_LARGE:+--large}
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$here/op_test" --device cuda --smallest
  done
fi
step streams "$here/stream_test"
step engine "$here/engine_test" --golden "$here/golden" --device cuda
step load "$here/load_test" --golden "$here/golden" --device cuda
step golden "$here/golden_test" --golden "$here/golden" --device cuda ${model:+--model "$model"}
[ -n "$model" ] && step text same_text

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
python3 - "$logs/ops.json" "$result" "$gpu" "$failed" "$(IFS=,; echo "[${steps[*]}]")" <<'PY'
import datetime, json, sys
ops_path, result, gpu, failed, steps = sys.argv[1:]
ops = json.load(open(ops_path))
table = {}
for row in ops["rows"]:
    entry = table.setdefault((row["op"], row["variant"]), {"op": row["op"], "variant": row["variant"], "passed": 0, "failed": 0, "skipped": 0, "worst_error": 0.0})
    entry[row["result"]] += 1
    entry["worst_error"] = max(entry["worst_error"], row["worst_error"])
json.dump({
    "gpu": gpu, "date": datetime.date.today().isoformat(), "ok": failed == "0", "steps": json.loads(steps),
    "ops": list(table.values()), "failures": [r for r in ops["rows"] if r["result"] == "failed"],
}, open(result, "w"), indent=1)
PY
exit $failed
