#!/usr/bin/env python3
"""Writes the tables between the markers of README.md and of each src/ops/<op>/README.md, from bench/results.
--check only compares."""

import json
import pathlib
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


def op_table(path):
    """What a call takes by itself, a row for each case that has a time."""
    found = json.loads(path.read_text())
    ceiling = found["ceilings"]
    rate = 1e3 * (ceiling.get("copy_tbps") or ceiling.get("read_tbps") or 0)
    best = [row for row in found["rows"] if row.get("us") and row.get("chosen", True)]
    rows = [[case(row), row["dtype"], f"`{row['variant']}`", f"{row['us']:.2f}", f"{1e3 * row['tbps']:.0f}",
             f"{1e3 * row['tflops']:.0f}", f"{100 * row['roof_share']:.0f} %" if row.get("roof_share") else "",
             f"{row['ratio']:.2f}" if row.get("ratio") else ""] for row in best]
    name = found.get("gpu") or found.get("cpu")
    header = ["case", "dtype", "variant", "µs", "GB/s", "GFLOP/s", "of the bandwidth", "best peer / ours"]
    return f"{name}, {found['date'][:10]}, measured bandwidth {rate:.0f} GB/s:\n\n{table(header, rows)}"


def main_tables():
    parts = [against_llama_cpp(path) for path in sorted(RESULTS.glob("*/llama_cpp.json"))]
    parts += [gpu_tests(path) for path in sorted(RESULTS.glob("*/tests.json"))]
    return parts + [python_package(path) for path in sorted(RESULTS.glob("*/python.json"))]


def pages():
    """Each page with markers, and what belongs between them."""
    yield ROOT / "README.md", main_tables()
    for folder in sorted((ROOT / "src" / "ops").iterdir()):
        found = sorted(RESULTS.glob(f"*/{folder.name}.json"))
        if found:
            yield folder / "README.md", [op_table(path) for path in found]


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
