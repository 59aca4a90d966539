#!/usr/bin/env python3
"""Writes the tables between the markers of README.md and of each src/ops/<op>/README.md, from bench/results.
--check only compares."""

import json
import math
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
BEGIN = "<!-- tables: written by tools/readme_tables.py from bench/results -->\n"
END = "<!-- end of tables -->\n"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def against_llama_cpp(path):
    found = json.loads(path.read_text())
    machine = found["machine"]
    rows = [[f"{row['test']}, {row['tokens']} tokens", str(row["threads"]), f"{row['tokens_per_s']:.1f}",
             f"{row['llama_cpp_tokens_per_s']:.1f}", f"{row['ratio']:.2f}",
             f"{100 * row['floor_share']:.0f} %" if "floor_share" in row else ""] for row in found["rows"]]
    return (f"{found['model']} on {machine['cores']} cores of an {machine['cpu']} ({machine['level']}), tokens per second, "
            f"medians of {found['rounds']} rounds; llama.cpp from llama-cpp-python {found['llama_cpp_python']}, the better "
            f"of flash attention on and off ({found['date'][:10]}):\n\n" +
            table(["test", "threads", "llm-speed", "llama.cpp", "ratio", "of the machine's read bandwidth"], rows))


def gpu_tests(path):
    found = json.loads(path.read_text())
    passed = sum(op["passed"] for op in found["ops"])
    steps = ", ".join(f"{step['step']} {'passed' if step['exit'] == 0 else 'FAILED'}" for step in found["steps"])
    return f"Tests on an {found['gpu'].split(',')[0]} ({found['date']}): {passed} op cases passed; steps: {steps}.\n"


def python_package(path):
    found = json.loads(path.read_text())
    tests = sum(row["passed"] for row in found["files"].values())
    failed = sum(row["failed"] for row in found["files"].values())
    rows = [[row["call"], row["dtype"], f"{row['us']:.2f}", f"{row['torch_us']:.2f}", f"{row['ratio']:.2f}"]
            for row in found["overhead"]]
    return (f"Python package on an {found['gpu']} ({found['date']}, torch {found['torch']}): {tests} tests passed, {failed} "
            f"failed. What a call costs the host, small tensors, beside torch's own:\n\n" +
            table(["call", "dtype", "µs", "torch µs", "ratio"], rows))


def case(row):
    sizes = " x ".join(str(value) for value in row["params"].values())
    return f"{row['case']}, {sizes}"


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def summary(rows):
    """Sets of cases (the first word of their names) against the best peer; nothing without peers."""
    sets = {}
    for row in rows:
        if row.get("ratio"):
            sets.setdefault((re.split(r"[ ,]", row["case"])[0], row["dtype"]), []).append(row)
    lines = []
    for (name, dtype), members in sets.items():
        ratios = [row["ratio"] for row in members]
        sustained = [row["ratio_sustained"] for row in members if row.get("ratio_sustained")]
        worst = min(members, key=lambda row: row["ratio"])
        lines.append([name, dtype, str(len(members)), f"{geometric_mean(ratios):.2f}", f"{worst['ratio']:.2f} ({case(worst)})",
                      f"{geometric_mean(sustained):.2f}" if sustained else ""])
    header = ["set", "dtype", "cases", "best peer / ours, geometric mean", "lowest", "sustained, geometric mean"]
    return table(header, lines) + "\n" if lines else ""


def two_digits(row, name):
    return f"{row[name]:.2f}" if row.get(name) else ""


def op_table(path):
    """What a call takes by itself, a row for each case that has a time."""
    found = json.loads(path.read_text())
    ceiling = found["ceilings"]
    rate = 1e3 * (ceiling.get("copy_tbps") or ceiling.get("read_tbps") or 0)
    best = [row for row in found["rows"] if row.get("us") and row.get("chosen", True)]
    unit, scale = ("TFLOP/s", 1) if any(row["tflops"] > 10 for row in best) else ("GFLOP/s", 1e3)
    columns = {
        "case": case,
        "dtype": lambda row: row["dtype"],
        "variant": lambda row: f"`{row['variant']}`",
        "µs": lambda row: f"{row['us']:.2f}",
        "GB/s": lambda row: f"{1e3 * row['tbps']:.0f}",
        unit: lambda row: f"{scale * row['tflops']:.0f}",
        "of the bandwidth": lambda row: f"{100 * row['roof_share']:.0f} %" if row.get("roof_share") else "",
        "best peer / ours": lambda row: two_digits(row, "ratio"),
    }
    if any(row.get("sustained_us") for row in best):
        columns["sustained µs"] = lambda row: two_digits(row, "sustained_us")
        columns["best peer / ours, sustained"] = lambda row: two_digits(row, "ratio_sustained")
    rows = [[write(row) for write in columns.values()] for row in best]
    peers = ", ".join(f"{name} {version}" for name, version in found.get("peers", {}).items() if version)
    head = f"{found.get('gpu') or found.get('cpu')}, {found['date'][:10]}, measured bandwidth {rate:.0f} GB/s"
    return f"{head}{', peers: ' + peers if peers else ''}:\n\n{summary(best)}{table(list(columns), rows)}"


def torch_table(path):
    """gemm beside torch: bench/compare_torch_gemm.py."""
    found = json.loads(path.read_text())
    timed = [row for row in found["rows"] if row.get("ratio")]
    return (f"Beside torch {found['peers']['torch']} in one process, {found['gpu']}, {found['date'][:10]}:\n\n"
            f"{summary(timed)}")


def main_tables():
    parts = [against_llama_cpp(path) for path in sorted(RESULTS.glob("*/llama_cpp.json"))]
    parts += [gpu_tests(path) for path in sorted(RESULTS.glob("*/tests.json"))]
    return parts + [python_package(path) for path in sorted(RESULTS.glob("*/python.json"))]


def pages():
    """Each page with markers, and what belongs between them."""
    yield ROOT / "README.md", main_tables()
    for folder in sorted((ROOT / "src" / "ops").iterdir()):
        parts = [op_table(path) for path in sorted(RESULTS.glob(f"*/{folder.name}.json"))]
        parts += [torch_table(path) for path in sorted(RESULTS.glob(f"*/{folder.name}_torch.json"))]
        if parts:
            yield folder / "README.md", parts


def main():
    stale = []
    for page, parts in pages():
        text = page.read_text()
        head, rest = text.split(BEGIN)
        new = head + BEGIN + "\n" + "\n".join(parts) + "\n" + END + rest.split(END)[1]
        if new != text:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in sys.argv[1:]:
                page.write_text(new)
    if "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: not what bench/results says, run tools/readme_tables.py" if stale else 0)


if __name__ == "__main__":
    main()
