"""What a call costs on the host: ours beside torch's own op, in one process.

    python bench/python_overhead.py [--json FILE]

Small tensors, so that the kernel is shorter than the call; a burst fits the launch queue, so that the GPU never holds
the host up. Medians of bursts, in microseconds a call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any, Callable

import torch
import torch.nn.functional as F

import llm_speed

BURST, BURSTS = 200, 101


def host_time(call: Callable[[], Any], device: str) -> float:
    """Median over the bursts of the host's seconds a call."""
    samples = []
    for _ in range(BURSTS):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(BURST):
            call()
        samples.append((time.perf_counter_ns() - start) / BURST)
    return statistics.median(samples) * 1e-9


def pairs(device: str, dtype: torch.dtype) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Name: (ours, torch's)."""
    x = torch.randn(16, 1024, device=device, dtype=dtype)
    w = torch.randn(1024, device=device, dtype=dtype)
    gate, out = torch.randn_like(x), torch.empty_like(x)
    return {
        "rms_norm, out=": (lambda: llm_speed.rmsnorm(x, w, out=out), lambda: F.rms_norm(x, (1024,), w, 1e-6)),
        "rms_norm": (lambda: llm_speed.rmsnorm(x, w), lambda: F.rms_norm(x, (1024,), w, 1e-6)),
        "rms_norm, torch.ops": (
            lambda: torch.ops.llm_speed.rmsnorm(x, w, 1e-6),
            lambda: F.rms_norm(x, (1024,), w, 1e-6),
        ),
        "silu * up, out=": (lambda: llm_speed.gated_act(gate, x, out=out), lambda: F.silu(gate).mul_(x)),
        "layer_norm, out=": (
            lambda: llm_speed.layernorm(x, w, w, out=out),
            lambda: F.layer_norm(x, (1024,), w, w),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    print(f"{'call':24} {'dtype':9} {'ours us':>8} {'torch us':>9} {'ratio':>6}")
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float32):
            for name, (ours, theirs) in pairs(device, dtype).items():
                for call in (ours, theirs):
                    host_time(call, device)  # warm
                us, peer = 1e6 * host_time(ours, device), 1e6 * host_time(theirs, device)
                rows.append({"call": name, "dtype": str(dtype)[6:], "us": us, "torch_us": peer, "ratio": us / peer})
                print(f"{name:24} {rows[-1]['dtype']:9} {us:8.2f} {peer:9.2f} {us / peer:6.2f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": device, "torch": torch.__version__, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
