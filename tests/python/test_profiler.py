"""Profiles: what is counted, against arithmetic done here; and times, against what a clock must show."""

from __future__ import annotations

import math
import statistics
import threading
import time

import pytest
import torch
from conftest import CUDA

import llm_speed
from llm_speed import _C, errors, profile


def test_one_call(device):
    x, weight = torch.randn(64, 512, device=device), torch.ones(512, device=device)
    out = torch.empty_like(x)
    seen = []

    def norm(x, *, eps):
        seen.append(eps)
        return llm_speed.rmsnorm(x, weight, eps, out=out)

    found = profile(norm, x, eps=1e-3, repeat=20, warmup=3)
    assert seen == [1e-3] * (3 + 1 + 20)
    assert found.name == "norm" and found.device == ("cuda:0" if device == "cuda" else "cpu")
    assert len(found.times) == 20 and min(found.times) > 0
    assert found.median == statistics.median(found.times) and found.p95 == sorted(found.times)[18]

    (call,) = found.calls
    assert call.op == "rmsnorm"
    assert (call.op, call.variant, device) in {(v["op"], v["variant"], v["device"]) for v in llm_speed.variants()}
    assert call.bytes == 4 * (2 * 64 * 512 + 512)
    reach = llm_speed.ceilings(device)
    assert reach.read_bytes_per_s > 1e8 and reach.f32_flops > 1e8
    floors = {"memory": call.bytes / reach.read_bytes_per_s, "compute": call.flops / reach.f32_flops}
    assert call.floor == pytest.approx(max(floors.values())) and call.bound == max(floors, key=floors.get)
    assert found.floor == call.floor and found.floor_share == pytest.approx(call.floor / found.median)
    assert found.gbps == pytest.approx(call.bytes / found.median / 1e9)
    assert found.tflops == pytest.approx(call.flops / found.median / 1e12)
    assert found.bound == ("latency" if found.floor_share < 0.25 else call.bound)
    if device == "cpu":
        assert call.kernel is call.grid is call.registers is call.occupancy is found.occupancy is None
    else:
        assert "rmsnorm" in call.kernel and math.prod(call.grid) >= 1 and math.prod(call.block) <= 1024
        assert 0 < call.occupancy <= 1 and found.occupancy == call.occupancy and call.registers > 0


def test_several_calls(device):
    x, weight = torch.randn(32, 256, device=device), torch.randn(512, 256, device=device)

    def layer():
        up = llm_speed.linear(llm_speed.rmsnorm(x), weight)
        return llm_speed.gated_act(up[:, :256], up[:, 256:])

    found = profile(layer, repeat=5)
    assert [call.op for call in found.calls] == ["rmsnorm", "linear", "gated_act"]
    assert found.floor == pytest.approx(sum(call.floor for call in found.calls))
    assert found.calls[1].flops == pytest.approx(2 * 32 * 256 * 512, rel=0.01)
    assert found.occupancy == max(found.calls, key=lambda call: call.floor).occupancy
    assert found.gbps == pytest.approx(sum(call.bytes for call in found.calls) / found.median / 1e9)
    text = str(found)
    assert text.startswith(f"layer on {found.device}: 5 calls, median ")
    lines = text.splitlines()
    assert [line.split()[:2] for line in lines[3:]] == [[call.op, call.variant] for call in found.calls]
    assert f"bound: {found.bound}" in lines[1] and all(call.bound in line for call, line in zip(found.calls, lines[3:]))


def test_a_product_is_arithmetic(device):
    a = torch.randn(1024, 1024, device=device)
    (call,) = profile(llm_speed.gemm, a, a, repeat=2, warmup=1).calls
    assert call.bound == "compute" and call.flops == pytest.approx(2 * 1024**3, rel=0.01)


def test_time_beside_the_ops_is_latency(device):
    x = torch.randn(4, 64, device=device)

    def slow():
        time.sleep(0.02)
        llm_speed.rmsnorm(x)

    found = profile(slow, repeat=5, warmup=1)
    assert min(found.times) >= 0.015 and found.bound == "latency" and found.floor_share < 0.25


def test_times_of_a_large_call_are_those_of_the_clock(device):
    x = torch.randn(512, 8192, device=device)
    out = torch.empty_like(x)
    norm = lambda: llm_speed.rmsnorm(x, out=out)  # noqa: E731
    found = profile(norm, repeat=30)
    began = time.perf_counter()
    for _ in range(30):
        norm()
    if device == "cuda":
        torch.cuda.synchronize()
    each = (time.perf_counter() - began) / 30
    assert min(found.times) <= 2 * each and each / 20 < found.median


def test_calls_that_write_elsewhere_are_not_mixed_in(device):
    """Only this thread's calls count, and only while the function runs."""
    x = torch.randn(4, 64, device=device)

    def other():
        thread = threading.Thread(target=lambda: llm_speed.layernorm(x))
        thread.start()
        thread.join()
        llm_speed.rmsnorm(x)

    assert [call.op for call in profile(other, repeat=2).calls] == ["rmsnorm"]
    llm_speed.layernorm(x)
    assert _C.record_stop() == []


def test_an_exception_ends_the_recording(device):
    x = torch.randn(4, 64, device=device)

    def broken():
        llm_speed.rmsnorm(x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        profile(broken, warmup=0)
    llm_speed.rmsnorm(x)
    assert _C.record_stop() == []


def test_calls_that_fail_leave_no_record(device):
    x = torch.randn(4, 64, device=device)

    def refused():
        with pytest.raises(errors.ArgumentError):
            llm_speed.rmsnorm(x, torch.ones(63, device=device))
        llm_speed.rmsnorm(x)

    assert len(profile(refused, repeat=1).calls) == 1


def test_compiled_function(device):
    x, weight = torch.randn(4, 64, device=device), torch.ones(64, device=device)
    compiled = torch.compile(lambda x: llm_speed.rmsnorm(x, weight) * 2, backend="aot_eager", fullgraph=True)
    assert [call.op for call in profile(compiled, x, repeat=2, warmup=1).calls] == ["rmsnorm"]


def test_without_op_calls(device):
    found = profile(torch.add, torch.ones(8, device=device), 1, device=device, repeat=3)
    assert found.calls == [] and found.bound == "unknown" and found.floor == found.tflops == 0
    assert "no op call" in str(found) and found.median > 0 and found.occupancy is None


def test_arguments():
    x = torch.randn(4, 64)
    for bad in ({"repeat": 0}, {"warmup": -1}):
        with pytest.raises(errors.ArgumentError, match=next(iter(bad))):
            profile(llm_speed.rmsnorm, x, **bad)
    for device in ("tpu", "cuda:x"):
        with pytest.raises(errors.ArgumentError, match="device"):
            profile(torch.add, x, x, device=device)
    with pytest.raises(errors.UnsupportedError, match="cpu and cuda:0"):
        profile(llm_speed.rmsnorm, x, device="cuda")


@pytest.mark.skipif(not CUDA, reason="no GPU")
def test_side_stream():
    """The events stand on the stream of the ops, so that the time is theirs."""
    x = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = profile(llm_speed.gemm, x, x, repeat=3, warmup=1)
    explicit = profile(llm_speed.gemm, x, x, stream=stream.cuda_stream, repeat=3, warmup=1)
    floor = beside.calls[0].flops / llm_speed.ceilings("cuda").f32_flops
    assert min(beside.times + explicit.times) >= 0.9 * floor


def test_ceilings_follow_the_number_of_threads():
    before = llm_speed.get_num_threads()
    one = llm_speed.ceilings()
    assert llm_speed.ceilings("cpu") is one
    llm_speed.set_num_threads(before + 1)
    try:
        assert llm_speed.ceilings() is not one
    finally:
        llm_speed.set_num_threads(before)
    assert llm_speed.ceilings() is one
