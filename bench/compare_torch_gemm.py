"""gemm beside torch's own products, in one process: torch.matmul, torch._int_mm for int8, torch._scaled_mm for fp8.

    python bench/compare_torch_gemm.py RESULT.json [--case TEXT] [--seconds S] [--sustained S] [--json FILE]

Shapes are those of RESULT.json, which `llmspeed bench op --op gemm --json RESULT.json` wrote. Both compute the same random
normal tensors, of which there are enough copies that the L2 cache does not serve them, and both are checked against
float64. They are timed in turns, as graphs of equally many calls, in the way that bench/README.md describes: bursts of
a few milliseconds between rests, and with --sustained also without rests.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable

import torch

import llm_speed

LOOP, REST, MAX_CALLS = 4e-3, 6, 256  # seconds a loop; rests in units of a burst; calls a graph
DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "f8_e4m3": torch.float8_e4m3fn,
}
TOLERANCE = {"f32": 1e-4, "f16": 2e-3, "bf16": 1e-2, "i8": 0.0, "f8_e4m3": 1e-2}
SPECIAL = ("plain b", "f32 out", "tf32", "fast accumulation")  # cases that torch has no equal of, or by other means


@dataclass
class Copy:
    """One copy of a case's tensors: out [m, n] = a [m, k] @ weight [n, k].T."""

    a: torch.Tensor
    weight: torch.Tensor
    out: torch.Tensor
    scale: torch.Tensor

    def ours(self) -> None:
        scales: dict[str, Any] = {}
        if self.a.dtype == torch.float8_e4m3fn:
            scales = {"scale_a": self.scale, "scale_b": self.scale}
        llm_speed.gemm(self.a, self.weight, trans_b=True, out=self.out, **scales)

    def torch(self) -> None:
        if self.a.dtype == torch.int8:
            torch._int_mm(self.a, self.weight.t(), out=self.out)
        elif self.a.dtype == torch.float8_e4m3fn:
            torch._scaled_mm(self.a, self.weight.t(), self.scale, self.scale, out_dtype=torch.bfloat16, out=self.out)
        else:
            torch.matmul(self.a, self.weight.t(), out=self.out)


def random(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, device="cuda", dtype=dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def make_copies(m: int, n: int, k: int, dtype: torch.dtype) -> list[Copy]:
    out_dtype = {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16}.get(dtype, dtype)
    size = (m * k + n * k) * dtype.itemsize + m * n * out_dtype.itemsize
    count = 4 * torch.cuda.get_device_properties(0).L2_cache_size // size + 1
    return [
        Copy(
            random((m, k), dtype),
            random((n, k), dtype),
            torch.empty((m, n), device="cuda", dtype=out_dtype),
            torch.full((1,), 0.5, device="cuda"),
        )
        for _ in range(min(count, 1024))
    ]


def pick(t: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows as float64; by bytes, since fp8 tensors cannot be indexed everywhere."""
    return t.view(torch.uint8)[rows].view(t.dtype).double()


def worst_error(copy: Copy) -> float:
    """Largest error over rows and columns spread over the output, relative to its size and to its rms."""
    m, n = copy.out.shape
    rows = torch.linspace(0, m - 1, min(m, 64), device="cuda").long()
    columns = torch.linspace(0, n - 1, min(n, 64), device="cuda").long()
    factor = 0.25 if copy.a.dtype == torch.float8_e4m3fn else 1.0
    want = factor * (pick(copy.a, rows) @ pick(copy.weight, columns).t())
    got = pick(copy.out, rows)[:, columns]
    allowed = want.abs() + want.square().mean().sqrt()
    return ((got - want).abs() / allowed).max().nan_to_num(math.inf).item()


class Loop:
    """A graph of calls that rotate through the copies."""

    def __init__(self, calls: list[Callable[[], None]], count: int, stream: torch.cuda.Stream) -> None:
        self.count, self.stream, self.graph = count, stream, torch.cuda.CUDAGraph()
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.graph(self.graph, stream=stream):
            for i in range(count):
                calls[i % len(calls)]()

    def run(self, lead: int, rounds: int) -> float:
        """Seconds a call of `rounds` replays, right behind `lead` that do not count."""
        with torch.cuda.stream(self.stream):
            for _ in range(lead):
                self.graph.replay()
            self.start.record()
            for _ in range(rounds):
                self.graph.replay()
            self.stop.record()
        self.stop.synchronize()
        return 1e-3 * float(self.start.elapsed_time(self.stop)) / (rounds * self.count)


def race(racers: list[list[Callable[[], None]]], seconds: float, sustained: float) -> list[tuple[float, float]]:
    """Of each racer the median of bursts, and the time without rests (0 when not asked for)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for calls in racers:
            calls[0]()  # a capture cannot load kernels or make workspaces
    stream.synchronize()
    slowest = max(Loop(calls, 1, stream).run(1, 1) for calls in racers)
    count = max(1, min(MAX_CALLS, int(LOOP / slowest)))
    loops = [Loop(calls, count, stream) for calls in racers]
    samples: list[list[float]] = [[] for _ in loops]
    begin = time.perf_counter()
    while len(samples[0]) < 3 or time.perf_counter() - begin < seconds * len(loops):
        for loop, times in zip(loops, samples):
            start = time.perf_counter()
            times.append(loop.run(1 if slowest * count <= 1.25 * LOOP else 0, 1))
            time.sleep(min(0.1, REST * (time.perf_counter() - start)))
    medians = [statistics.median(times) for times in samples]
    long_times = [0.0] * len(loops)
    if sustained > 0:
        for i in [*range(len(loops)), *reversed(range(len(loops)))]:  # there and back: warmth favours nobody
            one = medians[i] * count
            long_times[i] += 0.5 * loops[i].run(math.ceil(0.1 / one), math.ceil(0.5 * sustained / one))
    return list(zip(medians, long_times))


def compare(row: dict[str, Any], seconds: float, sustained: float) -> dict[str, Any]:
    m, n, k = (row["params"][name] for name in "mnk")
    copies = make_copies(m, n, k, DTYPES[row["dtype"]])
    found = {name: row[name] for name in ("op", "case", "params", "dtype")}
    for name, call in (("ours", Copy.ours), ("torch", Copy.torch)):
        copies[0].out.view(torch.uint8).fill_(0xFF)
        try:
            call(copies[0])
        except (RuntimeError, llm_speed.errors.Error) as refusal:  # the other cases have their times still
            return {**found, "failed": f"{name}: {refusal}"}
        error = worst_error(copies[0])
        if not error <= TOLERANCE[row["dtype"]]:
            return {**found, "failed": f"{name} is wrong by {error:.3g}"}
    racers = [[copy.ours for copy in copies], [copy.torch for copy in copies]]
    (ours, ours_long), (peer, peer_long) = race(racers, seconds, sustained)
    found |= {"us": 1e6 * ours, "peers": {"torch": 1e6 * peer}, "ratio": peer / ours, "tflops": 2e-12 * m * n * k / ours}
    if sustained > 0:
        found |= {"sustained_us": 1e6 * ours_long, "peers_sustained": {"torch": 1e6 * peer_long}}
        found |= {"ratio_sustained": peer_long / ours_long}
    return found


def wanted(row: dict[str, Any], text: str) -> bool:
    if not row.get("chosen") or text not in row["case"] or any(word in row["case"] for word in SPECIAL):
        return False
    if row["dtype"] == "i8" and row["params"]["m"] <= 16:
        return False  # torch._int_mm needs more rows
    return row["dtype"] in DTYPES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path, help="what llmspeed bench op wrote")
    parser.add_argument("--case", default="", metavar="TEXT", help="cases whose name contains TEXT")
    parser.add_argument("--seconds", type=float, default=0.3, help="of samples, a row and each of both")
    parser.add_argument("--sustained", type=float, default=0.0, help="of calls without a rest")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    head = {"gpu": torch.cuda.get_device_name(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "version": llm_speed.__version__, "peers": {"torch": torch.__version__}}
    print(f"{'case':40} {'dtype':8} {'us':>10} {'torch us':>10} {'ratio':>6} {'sustained':>10} {'ratio':>6}")
    with torch.no_grad():
        for row in json.loads(args.result.read_text())["rows"]:
            if not wanted(row, args.case):
                continue
            found = compare(row, args.seconds, args.sustained)
            rows.append(found)
            if args.json:  # each time: a run that is cut short leaves what it has
                args.json.write_text(json.dumps({**head, "rows": rows}, indent=1))
            name = f"{row['case']} {'x'.join(str(value) for value in row['params'].values())}"
            if "failed" in found:
                print(f"{name:40} {row['dtype']:8} {found['failed']}", flush=True)
                continue
            print(f"{name:40} {row['dtype']:8} {found['us']:10.2f} {found['peers']['torch']:10.2f} {found['ratio']:6.2f} "
                  f"{found.get('sustained_us', 0):10.2f} {found.get('ratio_sustained', 0):6.2f}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
