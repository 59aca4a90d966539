"""How fast a function's ops are, and how fast they could be on this machine.

    print(llm_speed.profile(llm_speed.linear, x, weight))

The floor of a call is the time that its bytes take at the bandwidth measured here, or its arithmetic at the rate that
the device reaches, whichever is longer (Williams, Waterman and Patterson 2009, "Roofline"). include/llmspeed/core.h,
section 7, defines the counts and the ceilings.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import _C
from .errors import ArgumentError, UnsupportedError

_LAUNCH = ("kernel", "grid", "block", "shared_bytes", "registers", "occupancy")  # of OpCall; nothing on the CPU
_ceilings: dict[tuple[bool, int, int], Any] = {}  # by device and, on the CPU, threads


@dataclass(frozen=True)
class OpCall:
    """One op call of the profiled function."""

    op: str
    variant: str
    """The implementation that took it."""
    flops: float
    bytes: float
    """What the op's definition asks for: inputs read once, outputs written once."""
    floor: float
    """Seconds."""
    bound: str
    """"memory" or "compute", whichever makes the floor; "unknown" where no ceiling is."""
    kernel: Optional[str]
    """The launch with the most threads; None on the CPU, as what follows."""
    grid: Optional[tuple[int, int, int]]
    block: Optional[tuple[int, int, int]]
    shared_bytes: Optional[int]
    registers: Optional[int]
    """A thread's."""
    occupancy: Optional[float]
    """Warps that a multiprocessor can hold of this launch, over the most it can hold at all."""


@dataclass(frozen=True)
class Profile:
    """Times of a function, and what its op calls ask of the machine. print() shows it as a table."""

    name: str
    device: str
    times: list[float]
    """Seconds, one a call, in order."""
    median: float
    p95: float
    """Seconds that 95 % of the calls do not exceed."""
    tflops: float
    gbps: float
    """What the op calls ask for, over the median: 1e12 operations and 1e9 bytes a second."""
    floor: float
    """Seconds: the sum over the op calls. What the function does beside them has no part in it."""
    floor_share: float
    """floor / median; above 1 where caches serve what counts as memory."""
    bound: str
    """Of the calls that make most of the floor: "memory" or "compute"; "latency" where the floor is below a quarter of
    the time; "unknown" without op calls or ceilings."""
    occupancy: Optional[float]
    """Of the call with the highest floor; None on the CPU."""
    calls: list[OpCall]

    def __str__(self) -> str:
        lines = [
            f"{self.name} on {self.device}: {len(self.times)} calls, "
            f"median {_time(self.median)}, p95 {_time(self.p95)}",
            f"{self.tflops * 1e3:.4g} GFLOP/s, {self.gbps:.4g} GB/s; floor {_time(self.floor)}, "
            f"{self.floor_share:.0%} of the median; bound: {self.bound}",
        ]
        rows = [("op", "variant", "MFLOP", "MB", "floor", "bound", "occupancy", "kernel")]
        rows += [
            (
                call.op,
                call.variant,
                f"{call.flops / 1e6:.4g}",
                f"{call.bytes / 1e6:.4g}",
                _time(call.floor),
                call.bound,
                "" if call.occupancy is None else f"{call.occupancy:.0%}",
                "" if call.kernel is None else f"{call.kernel} {_extent(call.grid)} x {_extent(call.block)}",
            )
            for call in self.calls
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        numbers = (2, 3, 4, 6)
        for row in rows:
            cells = [cell.rjust(widths[i]) if i in numbers else cell.ljust(widths[i]) for i, cell in enumerate(row)]
            lines.append("  ".join(cells).rstrip())
        if not self.calls:
            lines[2:] = ["no op call of llm_speed"]
        return "\n".join(lines)


def _time(seconds: float) -> str:
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= s), ("us", 1e-6))
    return f"{seconds / scale:.4g} {unit}"


def _extent(size: Optional[tuple[int, ...]]) -> str:
    return "(" + ", ".join(map(str, size or ())) + ")"


def profile(
    fn: Callable[..., Any],
    *args: Any,
    repeat: int = 50,
    warmup: int = 5,
    device: Optional[str] = None,
    **kwargs: Any,
) -> Profile:
    """Times fn(*args, **kwargs) `repeat` times after `warmup` calls, and weighs the time against the op calls in it.

    device ("cpu", "cuda", "cuda:1") is that of the op calls; give it for a function without any. On CUDA each call
    stands between two events of torch or CuPy on the stream of the first op call, without a synchronisation in between;
    on the CPU, and for JAX, whose calls wait, it is the clock's time. Arrays are the same in each call, so those that
    fit into caches come from there. One more call, not timed, records the op calls of this thread; a replayed CUDA
    graph makes none. The first profile on a device measures its ceilings for about a second: it must else be idle.

    UnsupportedError when the op calls ran on several devices, or on another than the one given.
    """
    if repeat < 1 or warmup < 0:
        raise ArgumentError(f"profile: repeat is {repeat}, warmup is {warmup}; must be at least 1 and 0")

    def call() -> None:
        fn(*args, **kwargs)

    for _ in range(warmup):
        call()
    records = _record(call)
    places = {(record["cuda"], record["device_index"]) for record in records}
    if device is not None or not places:
        places.add(_parse_device(device or "cpu"))
    if len(places) > 1:
        names = " and ".join(_device_name(*place) for place in sorted(places))
        raise UnsupportedError(f"profile: {names} take part: one device at a time")
    ((on_cuda, index),) = places
    if on_cuda:
        times = _cuda_times(call, repeat, index, records[0]["stream"] if records else 0)
    else:
        times = _cpu_times(call, repeat)
    return _judge(getattr(fn, "__name__", type(fn).__name__), on_cuda, index, times, records)


def _record(call: Callable[[], None]) -> list[dict[str, Any]]:
    _C.record_start()
    try:
        call()
    finally:
        records: list[dict[str, Any]] = _C.record_stop()
    return records


def _device_name(on_cuda: bool, index: int) -> str:
    return f"cuda:{index}" if on_cuda else "cpu"


def _parse_device(device: str) -> tuple[bool, int]:
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ArgumentError(f'profile: device is "{device}", must be cpu, cuda or cuda:N')
    return kind == "cuda", int(index or 0)


# ---- Clocks -----------------------------------------------------------------------------------------


def _cpu_times(call: Callable[[], None], repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def _cuda_times(call: Callable[[], None], repeat: int, index: int, stream: int) -> list[float]:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        with torch.cuda.device(index):
            on = torch.cuda.ExternalStream(stream, index) if stream else torch.cuda.default_stream(index)
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeat)]
            _enqueue(call, events, on, torch.cuda.synchronize)
            return [begin.elapsed_time(end) / 1e3 for begin, end in events]
    if cupy is not None:
        with cupy.cuda.Device(index) as place:
            on = cupy.cuda.ExternalStream(stream, index)
            events = [[cupy.cuda.Event() for _ in range(2)] for _ in range(repeat)]
            _enqueue(call, events, on, place.synchronize)
            return [cupy.cuda.get_elapsed_time(begin, end) / 1e3 for begin, end in events]
    if "jax" in sys.modules:
        return _cpu_times(call, repeat)
    raise UnsupportedError("profile: CUDA is timed with events of torch or CuPy: import one of them")


def _enqueue(call: Callable[[], None], events: list[list[Any]], stream: Any, synchronize: Callable[[], None]) -> None:
    synchronize()
    for begin, end in events:
        begin.record(stream)
        call()
        end.record(stream)
    synchronize()


# ---- Verdict ----------------------------------------------------------------------------------------


def ceilings(device: str = "cpu") -> Any:
    """What a device reaches at most, a second: read_bytes_per_s, f32_flops, f16_flops, i8_ops, tf32_flops, f8_flops; 0 where it is not known.
    Measured at the first call, with the threads that ops have now: it must otherwise be idle."""
    on_cuda, index = _parse_device(device)
    key = (on_cuda, index, 0 if on_cuda else _C.get_num_threads())
    if key not in _ceilings:
        _ceilings[key] = _C.measure_ceilings(on_cuda, index)
    return _ceilings[key]


def _judge(name: str, on_cuda: bool, index: int, times: list[float], records: list[dict[str, Any]]) -> Profile:
    device = _device_name(on_cuda, index)
    median = statistics.median(times)
    reach: Any = ceilings(device) if records else None
    calls = []
    for record in records:
        weigh = (record["math"], record["flops"], record["bytes"])
        _, floor = reach.classify(*weigh, 1.0)
        bound, _ = reach.classify(*weigh, floor)
        launch = {key: record[key] if on_cuda else None for key in _LAUNCH}
        calls.append(OpCall(record["op"], record["variant"], record["flops"], record["bytes"], floor, bound, **launch))
    floor = math.fsum(call.floor for call in calls)
    # Time is shared out in the ratio of the floors, so that the verdict on the whole is that on each call.
    verdicts: dict[str, float] = {}
    for call, record in zip(calls, records):
        share = median * call.floor / floor if floor else 0.0
        bound, _ = reach.classify(record["math"], record["flops"], record["bytes"], share)
        verdicts[bound] = verdicts.get(bound, 0.0) + call.floor
    heaviest = max(calls, key=lambda call: call.floor, default=None)
    return Profile(
        name=name,
        device=device,
        times=times,
        median=median,
        p95=sorted(times)[math.ceil(0.95 * len(times)) - 1],
        tflops=sum(call.flops for call in calls) / median / 1e12,
        gbps=sum(call.bytes for call in calls) / median / 1e9,
        floor=floor,
        floor_share=floor / median,
        bound=max(verdicts, key=lambda bound: verdicts[bound], default="unknown"),
        occupancy=heaviest.occupancy if heaviest else None,
        calls=calls,
    )
