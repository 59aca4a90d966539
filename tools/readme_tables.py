#!/usr/bin/env python3
"""Writes the tables of README.md, between its markers, from bench/results. --check only compares."""

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


def case(row):
    sizes = " x ".join(str(value) for value in row["params"].values())
    return f"{row['case']}, {sizes}, {row['dtype']}"


def ops(path):
    """What a call takes by itself, a row for each case that has a time."""
    found = json.loads(path.read_text())
    ceiling = found["ceilings"]
    rate = 1e3 * (ceiling.get("copy_tbps") or ceiling.get("read_tbps") or 0)
    best = [row for row in found["rows"] if row.get("us") and row.get("chosen", True)]
    rows = [[row["op"], case(row), f"`{row['variant']}`", f"{row['us']:.2f}", f"{1e3 * row['tbps']:.0f}",
             f"{1e3 * row['tflops']:.0f}", f"{100 * row['roof_share']:.0f} %" if row.get("roof_share") else "",
             f"{row['ratio']:.2f}" if row.get("ratio") else ""] for row in best]
    name = found.get("gpu") or found.get("cpu")
    header = ["op", "case", "variant", "µs", "GB/s", "GFLOP/s", "of the bandwidth", "best peer / ours"]
    title = f"Ops on {name} ({found['date'][:10]}, measured bandwidth {rate:.0f} GB/s)"
    return f"<details><summary>{title}</summary>\n\n{table(header, rows)}\n</details>\n"


def tables():
    parts = []
    for path in sorted(RESULTS.glob("*/*.json")):
        if path.name == "llama_cpp.json":
            parts.insert(0, against_llama_cpp(path))
        elif "ceilings" in json.loads(path.read_text()):
            parts.append(ops(path))
    return "\n".join(parts)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    body = tables()
    new = head + BEGIN + ("\n" + body + "\n" if body else "") + END + tail
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == text else "README.md does not show bench/results: run tools/readme_tables.py")
    readme.write_text(new)


if __name__ == "__main__":
    main()
