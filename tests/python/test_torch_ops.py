"""The torch operators: opcheck, torch.compile, export, CUDA graphs, streams, devices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any, Callable

import pytest
import torch

import llm_speed
from conftest import CUDA
from llm_speed import _C
from test_arrays import child_environment

operators = torch.ops.llm_speed
needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a GPU")

BF16 = torch.bfloat16


def randn(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype).to(device)


def i32(*values: Any, device: str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


# ---- opcheck -----------------------------------------------------------------------------------------


def functional_calls(device: str) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """(operator, args, kwargs) for each operator that returns new tensors, options in use."""

    def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return randn(*shape, dtype=dtype, device=device)

    def ids(*values: Any) -> torch.Tensor:
        return i32(*values, device=device)

    cache, table = r(5, 4, 2, 16), ids([4, 0], [2, 3])
    q, k, v = r(2, 3, 4, 16), r(2, 6, 2, 16), r(2, 6, 2, 16)
    ragged = {"cu_seqlens_q": ids(0, 2, 5), "cu_seqlens_kv": ids(0, 4, 6), "max_q_len": 3}
    rope = {"positions": ids(0, 5, 9), "style": "gptj", "rotary_dim": 8, "scaling": "linear", "factor": 2.0}
    tables = {"cos": r(3, 4), "sin": r(3, 4)}
    lse = r(3, 2)
    blocks = torch.zeros(4, 34, dtype=torch.uint8, device=device)
    int8 = torch.ones(3, 4, dtype=torch.int8, device=device)
    return [
        ("embed", (ids([1, 0], [3, 2]), r(4, 8, dtype=BF16)), {"scale": 2.0, "dtype": "f32"}),
        ("embed", (ids(1, 0), blocks), {"table_type": "q8_0"}),
        ("rmsnorm", (r(2, 3, 8, dtype=BF16), r(8)), {"eps": 1e-5, "weight_offset": 1.0}),
        ("rmsnorm", (r(3, 8),), {}),
        ("rmsnorm", (r(8, 3).T, r(8)), {}),
        ("add_rmsnorm", (r(3, 8), r(3, 8), r(8)), {}),
        ("layernorm", (r(3, 8), r(8), r(8)), {}),
        ("gemm", (r(3, 4), r(5, 4)), {"trans_b": True, "c": r(3, 5), "beta": 0.5, "alpha": 2.0}),
        ("gemm", (r(2, 4, 3), r(4, 5)), {"trans_a": True}),
        ("gemm", (r(3, 4, dtype=BF16), r(4, 5, dtype=BF16)), {"out_dtype": "f32"}),
        ("gemm", (int8, int8.T), {}),
        ("gemm", (int8, int8.T), {"scale_a": r(3, 1).abs(), "out_dtype": "bf16"}),
        ("gemm", (r(3, 4), r(4, 6)), {"bias": r(6), "act": "silu", "gated": True, "residual": r(3, 3)}),
        ("gemm_grouped", (r(5, 4), r(2, 4, 6), ids(0, 2, 5)), {"bias": r(2, 6), "act": "relu", "gated": True}),
        ("linear", (r(2, 3, 8, dtype=BF16), r(5, 8, dtype=BF16), r(5)), {"out_dtype": "f32"}),
        ("linear", (r(3, 32), blocks), {"weight_type": "q8_0"}),
        ("rope", (r(3, 2, 16),), rope),
        ("rope", (r(3, 2, 8),), tables),
        ("rope_pair", (r(3, 2, 16), r(3, 1, 16)), rope),
        ("attn_prefill", (q, k, v), {"causal": True, "window": [3, 1], "scale": 0.2, "softcap": 5.0}),
        ("attn_prefill", (q, k, v), {"bias": r(2, 4, 3, 6), "sinks": r(4), "alibi_slopes": r(4)}),
        ("attn_prefill_lse", (q.flatten(0, 1)[:5], k.flatten(0, 1)[:6], v.flatten(0, 1)[:6]), ragged),
        ("attn_decode", (q[:, :1], cache, cache, ids(5, 7)), {"page_table": table, "num_splits": 2}),
        ("attn_decode_lse", (q, k, v, ids(5, 6)), {"sinks": r(4)}),
        ("attn_merge", (r(3, 2, 8), lse, r(3, 2, 8), lse + 1), {}),
        ("gated_act", (r(3, 8), r(3, 8)), {"act": "gelu_tanh"}),
        (
            "sample",
            (r(3, 50),),
            {"temperature": r(3).abs(), "history": ids([1], [2], [3]), "history_lens": ids(1, 0, 1)},
        ),
        ("sample_probs", (r(3, 50),), {}),
    ]


def out_calls(device: str) -> dict[str, dict[str, Any]]:
    """For each operator that writes into its arguments, the arguments that are not at rest (None, 0, False)."""

    def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return randn(*shape, dtype=dtype, device=device)

    def ids(*values: Any) -> torch.Tensor:
        return i32(*values, device=device)

    new = torch.zeros_like
    x, q, k = r(3, 8, dtype=BF16), r(1, 3, 4, 16), r(1, 6, 2, 16)
    lse = r(3, 2)
    window = {"window_left": -1, "window_right": -1}
    return {
        "embed": {"table": r(4, 8), "ids": ids(1, 0, 2), "out": r(3, 8), "scale": 1.0},
        "rmsnorm": {"x": x, "weight": r(8), "residual": new(x), "residual_out": new(x), "out": new(x), "eps": 1e-6},
        "layernorm": {"x": x, "weight": r(8), "bias": r(8), "out": new(x), "eps": 1e-6},
        "gemm": {"a": r(3, 4), "b": r(4, 5), "out": r(3, 5), "alpha": 1.0},
        "gemm_grouped": {"a": r(5, 4), "b": r(2, 4, 6), "offsets": ids(0, 2, 5), "out": r(5, 6), "alpha": 1.0},
        "linear": {"x": r(3, 8), "weight": r(5, 8), "bias": r(5), "out": r(3, 5)},
        "rope": {"x": r(3, 2, 8), "x2": r(3, 1, 8), "positions": ids(0, 1, 7), "out": r(3, 2, 8), "out2": r(3, 1, 8)},
        "kv_write": {
            "k": r(2, 2, 8),
            "v": r(2, 2, 8),
            "k_cache": r(3, 4, 2, 8),
            "v_cache": r(3, 4, 2, 8),
            "slots": torch.tensor([5, 2], device=device),
        },
        "attn_prefill": {"q": q, "k": k, "v": k, "out": new(q), "lse": r(1, 4, 3), "causal": True, **window},
        "attn_decode": {"q": q, "k_cache": k, "v_cache": k, "kv_lens": ids(6), "out": new(q), "causal": True, **window},
        "attn_merge": {"a": r(3, 2, 8), "lse_a": lse, "b": r(3, 2, 8), "lse_b": lse, "out": r(3, 2, 8), "lse": r(3, 2)},
        "gated_act": {"gate": x, "up": new(x), "out": new(x)},
        "sample": {"logits": r(3, 20), "out_ids": ids(0, 0, 0), "out_probs": r(3), "temperature": r(3).abs()},
    }


def out_args(op: str, given: dict[str, Any]) -> tuple[Any, ...]:
    at_rest = {"int": 0, "float": 0.0, "bool": False}
    return tuple(given.get(name, at_rest.get(kind)) for name, kind in _C.op_fields(op))


def test_every_operator_is_checked():
    names = {
        name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names() if name.startswith("llm_speed::")
    }
    assert names == {call[0] for call in functional_calls("cpu")} | {f"{op}_out" for op in _C.op_names()}
    assert set(out_calls("cpu")) == set(_C.op_names())


CALL_NAMES = [f"{call[0]}-{i}" for i, call in enumerate(functional_calls("cpu"))]


@pytest.mark.parametrize("index", range(len(CALL_NAMES)), ids=CALL_NAMES)
def test_opcheck(device, index):
    name, args, kwargs = functional_calls(device)[index]
    torch.library.opcheck(getattr(operators, name).default, args, kwargs)


@pytest.mark.parametrize("op", _C.op_names())
def test_opcheck_out(device, op):
    torch.library.opcheck(getattr(operators, f"{op}_out").default, out_args(op, out_calls(device)[op]))


@pytest.mark.parametrize("index", range(len(CALL_NAMES)), ids=CALL_NAMES)
def test_operators_are_the_ops(device, index):
    """torch.ops.llm_speed.<op> gives the bits of llm_speed.<op>."""
    name, args, kwargs = functional_calls(device)[index]
    base = name.removesuffix("_lse").removesuffix("_probs").removesuffix("_pair")
    extra = {"attn_prefill_lse": {"return_lse": True}, "attn_decode_lse": {"return_lse": True}}
    extra["sample_probs"] = {"return_probs": True}
    got = getattr(operators, name)(*args, **kwargs)
    if name == "rope_pair":
        args, kwargs = args[:1], {**kwargs, "x2": args[1]}
    wanted = getattr(llm_speed, base)(*args, **kwargs, **extra.get(name, {}))
    for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (got, wanted))):
        assert torch.equal(a, b)


# ---- torch.compile -----------------------------------------------------------------------------------


def layer(
    x: torch.Tensor, residual: torch.Tensor, w: dict[str, torch.Tensor], cache: Any, positions: torch.Tensor
) -> Any:
    """A transformer layer by llm_speed.ops, as an engine would write it: outputs made and given, in place and fresh."""
    normed, residual = llm_speed.add_rmsnorm(x, residual, w["norm"])
    qkv = llm_speed.linear(normed, w["qkv"])
    q, k, v = (t.unflatten(-1, (-1, 16)) for t in qkv.split([64, 32, 32], -1))
    q, k = llm_speed.rope(q, positions, x2=k)
    llm_speed.kv_write(k, v, *cache, positions.long())
    y = llm_speed.attn_prefill(q[None], k[None], v[None], causal=True)[0].flatten(1)
    y, residual = llm_speed.add_rmsnorm(
        y, residual, w["norm"], out=torch.empty_like(y), residual_out=torch.empty_like(y)
    )
    gate, up = llm_speed.gemm(y, w["up"], trans_b=True).chunk(2, -1)
    act = torch.empty_like(up)
    llm_speed.gated_act(gate, up, act="silu", out=act)
    return llm_speed.layernorm(act, None, None), residual


def layer_inputs(tokens: int, device: str) -> tuple[Any, ...]:
    w = {"norm": randn(64, device=device), "qkv": randn(128, 64, device=device), "up": randn(128, 64, device=device)}
    cache = [torch.zeros(4, 8, 2, 16, device=device) for _ in "kv"]
    positions = torch.arange(tokens, dtype=torch.int32, device=device)
    return randn(tokens, 64, device=device), randn(tokens, 64, device=device), w, cache, positions


def assert_compiled_equals_eager(function: Callable[..., Any], make: Callable[[], Any], **options: Any) -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)
    eager_args = make()
    eager = function(*eager_args)
    torch.manual_seed(3)
    compiled_args = make()
    compiled = torch.compile(function, fullgraph=True, **options)(*compiled_args)
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0)
    torch.testing.assert_close(compiled_args, eager_args, rtol=0, atol=0)  # what was written in place


def test_compiled_layer_equals_eager(device):
    assert_compiled_equals_eager(layer, lambda: layer_inputs(5, device), backend="aot_eager")


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="inductor needs a C++ compiler")
def test_inductor_fuses_around_the_ops(device):
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = llm_speed.rmsnorm(x + x, w)
        llm_speed.gated_act(y, y, out=y)
        return y - x

    assert_compiled_equals_eager(
        step, lambda: (randn(3, 64, device=device), randn(64, device=device)), backend="inductor"
    )


def test_compiled_decode_and_sampling(device):
    def step(q: torch.Tensor, cache: torch.Tensor, lens: torch.Tensor, table: torch.Tensor) -> Any:
        y, lse = llm_speed.attn_decode(q, cache, cache, lens, return_lse=True)
        merged, _ = llm_speed.attn_merge(y[:, 0], lse[..., 0], y[:, 0], lse[..., 0])
        ids, probs = llm_speed.sample(merged.flatten(1), temperature=0.7, top_k=5, seed=11, return_probs=True)
        return llm_speed.embed(ids, table), probs, llm_speed.gated_act(y.flatten(1), act="gelu")

    def make() -> Any:
        return (
            randn(2, 1, 4, 16, device=device),
            randn(2, 9, 2, 16, device=device),
            i32(9, 3, device=device),
            randn(64, 8, device=device),
        )

    assert_compiled_equals_eager(step, make, backend="aot_eager")


def test_compiled_in_place(device):
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * 2
        llm_speed.rmsnorm(y, w, out=y)
        llm_speed.rmsnorm(x, w, out=x)
        return y + x

    assert_compiled_equals_eager(
        step, lambda: (randn(3, 64, device=device), randn(64, device=device)), backend="aot_eager"
    )


def test_no_recompilation_for_a_new_batch(device):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (5, 7, 12, 30):
        args = layer_inputs(tokens, device)
        torch.testing.assert_close(compiled(*args), layer(*args), rtol=0, atol=0)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_stream_inside_compile_is_refused(device):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: llm_speed.rmsnorm(x, stream=0), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="stream"):
        compiled(randn(2, 8, device=device))


def test_export(device):
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return llm_speed.gated_act(llm_speed.rmsnorm(x, self.weight))

    block = Block().to(device)
    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(block, (randn(4, 64, device=device),), dynamic_shapes=({0: rows},))
    for count in (4, 9):
        x = randn(count, 64, device=device)
        assert torch.equal(program.module()(x), block(x))


def test_gradients_are_refused_not_dropped(device):
    x = randn(2, 8, device=device).requires_grad_()
    with torch.enable_grad():
        with pytest.raises(ValueError, match="rmsnorm: x requires a gradient"):
            operators.rmsnorm(x)
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: llm_speed.rmsnorm(x).sum(), backend="aot_eager")
        with pytest.raises((RuntimeError, ValueError), match="grad"):
            compiled(x).backward()
    assert x.grad is None


# ---- Import order ------------------------------------------------------------------------------------

BEFORE_TORCH = """
import llm_speed
import torch
x = torch.randn(3, 16)
with torch.no_grad():
    got = torch.compile(lambda x: llm_speed.rmsnorm(x) + 1, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(got, llm_speed.rmsnorm(x) + 1)
    assert torch.equal(torch.ops.llm_speed.rmsnorm(x), llm_speed.rmsnorm(x))
"""


def test_imported_before_torch():
    """All other tests import torch first."""
    run_python(BEFORE_TORCH)


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()


# ---- CUDA: graphs, streams, devices ------------------------------------------------------------------

COLD_CAPTURE = """
import torch, llm_speed
torch.set_grad_enabled(False)
x, w, out = torch.randn(4, 256, device="cuda"), torch.ones(256, device="cuda"), torch.empty(4, 256, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):  # the first call of any op in this process
    {call}
x.normal_()
out.fill_(float("nan"))
graph.replay()
torch.cuda.synchronize()
wanted = out.clone()
out.fill_(float("nan"))
{call}
assert torch.equal(out, wanted) and out.isfinite().all()
"""


@needs_cuda
@pytest.mark.parametrize(
    "call",
    ["llm_speed.rmsnorm(x, w, out=out)", "llm_speed.gemm(x, x[:, :].T, out=out[:, :4])\n    out[:, 4:] = 0"],
)
def test_graph_captured_cold(call):
    run_python(COLD_CAPTURE.replace("{call}", call, 1).replace("{call}", call.replace("\n    ", "\n")))


@needs_cuda
@pytest.mark.parametrize("op", _C.op_names())
def test_graph_replays_with_new_values(op):
    """Captured warm; then every floating input changes, and the replay gives what a plain call gives."""
    given = out_calls("cuda")[op]
    args = out_args(op, given)
    operator = getattr(operators, f"{op}_out").default
    operator(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operator(*args)
    kinds = dict(_C.op_fields(op))
    outputs = [given[name] for name, kind in kinds.items() if kind.startswith("out") and name in given]
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and kinds[name].startswith("in"):
            value.normal_().abs_()
    graph.replay()
    replayed = [t.clone() for t in outputs]
    operator(*args)
    for a, b in zip(replayed, outputs):
        assert torch.equal(a, b)


@needs_cuda
def test_side_stream_waits_for_its_producer():
    """The op runs on the stream that is current in torch, behind a producer that is still at work there."""
    x, side = torch.zeros(64, 1024, device="cuda"), torch.cuda.Stream()
    llm_speed.rmsnorm(x)  # the context is made at the first call
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(2.0)
        y = llm_speed.rmsnorm(x, eps=0.0)
        assert not side.query()  # nobody has waited
        done = y.sum()
    side.synchronize()
    assert done.item() == y.numel()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3.0)
    given = llm_speed.gated_act(x, x, stream=side.cuda_stream)  # an explicit stream, another one current
    side.synchronize()
    assert (given > 8).all()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device_while_the_first_is_current():
    assert torch.cuda.current_device() == 0
    x = torch.randn(3, 64, device="cuda:1")
    y = llm_speed.rmsnorm(x)
    assert y.device == x.device and torch.cuda.current_device() == 0
    assert torch.equal(y.cpu(), llm_speed.rmsnorm(x.to("cuda:0")).cpu())
    with pytest.raises(ValueError, match="rmsnorm: out"):
        llm_speed.rmsnorm(x, out=torch.empty(3, 64, device="cuda:0"))
