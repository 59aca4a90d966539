"""What this package is and what it finds here: `python -m llm_speed.env`, or with --json for a report to send.

Works without a GPU, without a driver, and without any framework; imports none. A probe that fails says so in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import metadata
from typing import Any, Callable, Sequence

from . import _C

# Whose versions matter when something does not work.
_PACKAGES = "numpy ml_dtypes torch triton transformers jax jaxlib cupy-cuda12x cupy-cuda13x flash-attn vllm".split()
# All that begin so, misspelled ones too: those are what one looks for.
_VARIABLES = ("LLS_", "LLM_SPEED_", "CUDA_VISIBLE_DEVICES")


def _package() -> dict[str, Any]:
    return {"module": _C.__file__, **_C.build_info()}


def _python() -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "system": platform.platform(),
    }


def _frameworks() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return versions


def _cpu() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "op_threads": _C.get_num_threads()}


def _variants() -> dict[str, Any]:
    """Implementations of the ops, by device: how many can run here, and why others cannot."""
    found: dict[str, Any] = {}
    for row in _C.variants():
        device = found.setdefault(row["device"], {"can_run": 0, "cannot": {}})
        reason = row["unavailable"]
        if reason is None:
            device["can_run"] += 1
        else:
            device["cannot"][reason] = device["cannot"].get(reason, 0) + 1
    return found


def _variables() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


_PROBES: dict[str, Callable[[], Any]] = {
    "llm_speed": _package,
    "python": _python,
    "frameworks": _frameworks,
    "cpu": _cpu,
    "cuda_devices": _C.cuda_devices,
    "variants": _variants,
    "variables": _variables,
}


def report() -> dict[str, Any]:
    """Every probe's answer under its name; {"error": ...} for one that failed."""
    answers = {}
    for name, probe in _PROBES.items():
        try:
            answers[name] = probe()
        except Exception as error:  # a report is for machines on which something is wrong
            answers[name] = {"error": f"{type(error).__name__}: {error}"}
    return answers


def _lines(value: Any, indent: str) -> list[str]:
    if isinstance(value, list):
        value = dict(enumerate(value))
    lines = []
    for key, entry in value.items():
        if isinstance(entry, (dict, list)):
            lines += [f"{indent}{key}", *(_lines(entry, indent + "  ") or [f"{indent}  none"])]
        else:
            lines.append(f"{indent}{key}: {entry}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m llm_speed.env", description="Prints what llm_speed finds here.")
    parser.add_argument("--json", action="store_true", help="as JSON")
    as_json = parser.parse_args(arguments).json
    found = report()
    print(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found, "")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
