#!/usr/bin/env bash
# The Python package on this machine's GPU: builds the binding against an installed library, runs its tests and measures
# what calls cost.
#   tests/gpu/run_python.sh PREFIX RESULT.json [pytest options]
# PREFIX: the prefix/ that tests/gpu/bundle.sh makes on any machine.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$(realpath "${1:?usage: run_python.sh PREFIX RESULT.json}")
result=$(realpath -m "${2:?usage: run_python.sh PREFIX RESULT.json}")
shift 2
build=$(mktemp -d)

cmake -S "$root/python" -B "$build" -G Ninja -DLLM_SPEED_PREFIX="$prefix" >"$build/log" 2>&1 && cmake --build "$build" >>"$build/log" 2>&1 || { tail -n 30 "$build/log"; exit 1; }
export PYTHONPATH=$build PYTHONDONTWRITEBYTECODE=1 LLMSPEED=$prefix/bin/llmspeed
python3 -m pytest -q -p no:cacheprovider --junitxml "$build/tests.xml" "$@" "$root/tests/python" 2>&1 | tail -n 60
python3 "$root/bench/python_overhead.py" --json "$build/overhead.json"
python3 - "$build" "$result" <<'PY'
import datetime, json, sys
import xml.etree.ElementTree as tree
import torch, llm_speed
build, result = sys.argv[1:]
files = {}
failures = []
for case in tree.parse(f"{build}/tests.xml").iter("testcase"):
    row = files.setdefault(case.get("classname").rpartition(".")[2], {"passed": 0, "failed": 0, "skipped": 0})
    bad = case.find("failure") is not None or case.find("error") is not None
    row["failed" if bad else "skipped" if case.find("skipped") is not None else "passed"] += 1
    if bad:
        failures.append(case.get("name"))
json.dump({
    "gpu": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(), "version": llm_speed.__version__,
    "python": sys.version.split()[0], "torch": torch.__version__, "ok": not failures, "files": files,
    "failures": failures, "overhead": json.load(open(f"{build}/overhead.json"))["rows"],
}, open(result, "w"), indent=1)
print(json.dumps({k: sum(f[k] for f in files.values()) for k in ("passed", "failed", "skipped")}), failures[:20])
sys.exit(bool(failures))
PY
