"""What a wrong call says, and what it leaves alone: the exception's class and status, its words, the outputs, the next
call."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import pytest
import torch

import llm_speed
from conftest import CUDA
from llm_speed import errors

needs_cuda = pytest.mark.skipif(not CUDA, reason="needs a GPU")


class Case:
    """Good arguments of every kind on one device, and outputs full of NaN."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.x, self.w = torch.randn(4, 64, device=device), torch.randn(64, device=device)
        self.out = torch.full((4, 64), math.nan, device=device)

    def good(self) -> torch.Tensor:
        return llm_speed.rmsnorm(self.x, self.w)


@pytest.fixture
def case(device):
    return Case(device)


def assert_refused(case: Case, call: Callable[[], Any], kind: type, words: str, status: str = "") -> None:
    """The call raises `kind`, an llm_speed.Error, with these words; out keeps its NaN; then a good call works."""
    before = case.good()
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, errors.Error), type(caught.value)
    assert "\n" not in str(caught.value)
    if status:
        assert caught.value.status == status, caught.value
    assert case.out.isnan().all()
    assert torch.equal(case.good(), before)


# ---- Arrays that are none, or of the wrong kind ------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [[1.0] * 64, (1.0,), "text", 3.5, 7, object(), {"a": 1}, True], ids=lambda bad: type(bad).__name__
)
def test_what_is_no_array(case, bad):
    x, out = case.x, case.out
    assert_refused(
        case, lambda: llm_speed.rmsnorm(x, bad, out=out), TypeError, "rmsnorm: weight is a .*must be an array"
    )
    assert_refused(case, lambda: llm_speed.linear(x, bad, out=out), TypeError, "linear: weight is a")
    assert_refused(case, lambda: llm_speed.rmsnorm(bad, out=out), TypeError, "rmsnorm: x is a .*must be an array")


def test_required_arrays_are_not_none(case):
    x, out = case.x, case.out
    assert_refused(case, lambda: llm_speed.rmsnorm(None, out=out), TypeError, "rmsnorm: x is None, must be an array")
    assert_refused(case, lambda: llm_speed.linear(x, None, out=out), TypeError, "linear: weight is None")
    assert_refused(case, lambda: llm_speed.embed(None, x, out=out), TypeError, "embed: ids is None")
    assert_refused(
        case, lambda: llm_speed.attn_merge(x, None, x, x, out=out, lse=out), TypeError, "attn_merge: lse_a is None"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.complex64, torch.int16, torch.uint16], ids=str)
def test_dtypes_that_no_op_takes(case, dtype):
    bad = torch.ones(4, 64, dtype=torch.float32, device=case.device).to(dtype)
    words = rf"rmsnorm: x has dtype {dtype}, which no op takes"
    assert_refused(case, lambda: llm_speed.rmsnorm(bad, out=case.out), TypeError, words)
    assert_refused(case, lambda: llm_speed.rmsnorm(case.x, out=bad), TypeError, "rmsnorm: out has dtype")


def test_dtypes_that_this_op_does_not_take(case):
    x, w, out = case.x, case.w, case.out
    calls = [
        (lambda: llm_speed.rmsnorm(x.int(), out=out), "rmsnorm: x.dtype is i32"),
        (lambda: llm_speed.rmsnorm(x, w.half(), out=out), "rmsnorm: weight.dtype is f16"),
        (lambda: llm_speed.rmsnorm(x.half(), out=out), "rmsnorm: (out|x).dtype is f"),
        (
            lambda: llm_speed.embed(torch.zeros(4, dtype=torch.int64, device=case.device), x, out=out),
            "embed: ids.dtype is i64",
        ),
        (lambda: llm_speed.gemm(x, x.T.bfloat16(), out=out[:, :4]), "gemm: b.dtype is bf16"),
        (lambda: llm_speed.linear(x, x.to(torch.uint8), out=out[:, :4]), "linear: weight.dtype is u8"),
        (lambda: llm_speed.sample(x, out_ids=out[:, 0]), "sample: out_ids.dtype is f32"),
        (
            lambda: llm_speed.sample(x, temperature=torch.ones(4, dtype=torch.int32, device=case.device)),
            "sample: temperature.dtype is i32",
        ),
    ]
    for call, words in calls:
        assert_refused(case, call, TypeError, words, "LLS_ERR_DTYPE")


@pytest.mark.parametrize("form", ["meta", "fake", "sparse", "nested", "requires_grad"])
def test_tensors_that_hold_no_plain_memory(case, form):
    x = case.x
    if form == "meta":
        bad, kinds, words = x.to("meta"), (ValueError, TypeError), "rmsnorm: x"
    elif form == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        bad, kinds, words = FakeTensorMode().from_tensor(x.clone()), (ValueError, TypeError), "rmsnorm: x"
    elif form == "sparse":
        bad, kinds, words = x.to_sparse(), (ValueError, TypeError), "rmsnorm: x"
    elif form == "nested":
        bad = torch.nested.nested_tensor([x[0, :3], x[0, :5]], layout=torch.jagged)
        kinds, words = (ValueError, TypeError), "rmsnorm: x"
    else:
        bad, kinds, words = x.clone().requires_grad_(), ValueError, r"rmsnorm: x requires a gradient.*x\.detach\(\)"
    with torch.enable_grad():
        assert_refused(case, lambda: llm_speed.rmsnorm(bad, out=case.out), kinds, words)


# ---- Shapes, strides, overlaps -----------------------------------------------------------------------


def test_shapes(case):
    x, w, out = case.x, case.w, case.out
    calls = [
        (lambda: llm_speed.rmsnorm(x, w[:63], out=out), r"rmsnorm: weight.shape\[0\] is 63, must equal .*64"),
        (lambda: llm_speed.rmsnorm(x, x, out=out), "rmsnorm: weight.ndim is 2"),
        (lambda: llm_speed.rmsnorm(x, out=out[:3]), r"rmsnorm: out.shape\[0\] is 3"),
        (lambda: llm_speed.gemm(x, x, out=out), r"gemm: b.shape\[0\] is 4"),
        (lambda: llm_speed.linear(x, x[:, :60].contiguous(), out=out[:, :4]), r"linear: weight.shape\[1\] is 60"),
        (lambda: llm_speed.gated_act(x, x[:2], out=out), r"gated_act: up.shape\[0\] is 2"),
        (lambda: llm_speed.rope(x.view(4, 1, 64), out=out.view(4, 1, 64)), "rope: positions"),
        (lambda: llm_speed.sample(x, top_p=w[:3]), r"sample: top_p.shape\[0\] is 3"),
    ]
    for call, words in calls:
        assert_refused(case, call, ValueError, words)


def test_strides_of_outputs(case):
    columns = torch.full((64, 4), math.nan, device=case.device).T
    assert_refused(
        case,
        lambda: llm_speed.rmsnorm(case.x, out=columns),
        ValueError,
        r"rmsnorm: out.stride\[1\] is 4",
        "LLS_ERR_STRIDE",
    )
    assert columns.isnan().all()
    three = torch.full((2, 3, 64), math.nan, device=case.device)[:, :2]  # leading axes that are no single one
    assert_refused(
        case, lambda: llm_speed.gated_act(case.x.view(2, 2, 64), out=three), ValueError, "gated_act: out has strides"
    )
    assert three.isnan().all()


def test_overlaps(case):
    memory = torch.full((6, 64), 1.0, device=case.device)
    expanded = torch.full((1, 64), math.nan, device=case.device).expand(4, 64)
    calls = [
        lambda: llm_speed.rmsnorm(memory[:4], out=memory[1:5]),
        lambda: llm_speed.rmsnorm(memory[:4], memory[0], out=memory[:4]),
        lambda: llm_speed.add_rmsnorm(memory[:4], case.x, out=case.out, residual_out=case.out),
        lambda: llm_speed.gated_act(memory[:4], memory[2:], out=memory[1:5]),
        lambda: llm_speed.linear(memory[:4], memory[:, :64], out=memory[:4, :6]),
        lambda: llm_speed.gemm(memory[:4], memory[:4].T, out=memory[:4, :4]),
    ]
    for call in calls:
        assert_refused(case, call, ValueError, r"^(rmsnorm|gated_act|linear|gemm): .*overlap", "LLS_ERR_ALIAS")
        assert (memory == 1).all()
    assert_refused(case, lambda: llm_speed.rmsnorm(case.x, out=expanded), ValueError, "rmsnorm: out")


def test_read_only_output(case):
    frozen = np.full((4, 64), np.nan, np.float32)
    frozen.setflags(write=False)
    if case.device == "cpu":
        assert_refused(case, lambda: llm_speed.rmsnorm(case.x, out=frozen), ValueError, "rmsnorm: out is read-only")
    assert np.isnan(frozen).all()


# ---- Scalars, strings, variants ----------------------------------------------------------------------


def test_scalars(case):
    x, w, out = case.x, case.w, case.out
    q = x.view(1, 4, 4, 16)
    calls: list[tuple[Callable[[], Any], type, str]] = [
        (lambda: llm_speed.rmsnorm(x, w, -1.0, out=out), ValueError, "rmsnorm: eps is -1"),
        (lambda: llm_speed.rmsnorm(x, w, math.nan, out=out), ValueError, "rmsnorm: eps is nan"),
        (lambda: llm_speed.rmsnorm(x, w, "small", out=out), TypeError, "rmsnorm: eps is a str, must be a number"),
        (lambda: llm_speed.rmsnorm(x, w, None, out=out), TypeError, "rmsnorm: eps is a NoneType, must be a number"),
        (lambda: llm_speed.rmsnorm(x, w, out=out, variant=3), TypeError, "rmsnorm: variant is a int, must be a string"),
        (lambda: llm_speed.rmsnorm(x, w, out=out, stream="main"), TypeError, "rmsnorm: stream must be the integer"),
        (
            lambda: llm_speed.attn_prefill(q, q, q, softcap=-1.0, out=out.view(q.shape)),
            ValueError,
            "attn_prefill: .*softcap is -1",
        ),
        (
            lambda: llm_speed.attn_prefill(q, q, q, window=(2**31, 0), out=out.view(q.shape)),
            ValueError,
            "attn_prefill: window_left is 2147483648, must fit 32 bits",
        ),
        (
            lambda: llm_speed.attn_prefill(q, q, q, window=(1.5, 0), out=out.view(q.shape)),
            TypeError,
            "attn_prefill: window_left is a float, must be an integer",
        ),
        (
            lambda: llm_speed.rope(
                x.view(4, 1, 64),
                torch.zeros(4, dtype=torch.int32, device=case.device),
                rotary_dim=3,
                out=out.view(4, 1, 64),
            ),
            ValueError,
            "rope: rotary_dim is 3",
        ),
        (
            lambda: llm_speed.rope(
                x.view(4, 1, 64),
                torch.zeros(4, dtype=torch.int32, device=case.device),
                freq_factors=["a"] * 32,
                out=out.view(4, 1, 64),
            ),
            TypeError,
            "rope: freq_factors is a list, must be a sequence of numbers",
        ),
        (
            lambda: llm_speed.rope(
                x.view(4, 1, 64),
                torch.zeros(4, dtype=torch.int32, device=case.device),
                freq_factors=[1.0],
                out=out.view(4, 1, 64),
            ),
            ValueError,
            "rope: freq_factors has 1 elements, must be 32",
        ),
        (
            lambda: llm_speed.rope(
                x.view(4, 1, 64),
                torch.zeros(4, dtype=torch.int32, device=case.device),
                freq_factors=[1.0] * 31 + [0.0],
                out=out.view(4, 1, 64),
            ),
            ValueError,
            r"rope: freq_factors\[31\] is 0",
        ),
        (
            lambda: llm_speed.rope(
                x.view(4, 1, 64),
                torch.zeros(4, dtype=torch.int32, device=case.device),
                scaling="linear",
                out=out.view(4, 1, 64),
            ),
            ValueError,
            "rope: scaling.factor is 0",
        ),
    ]
    for call, kind, words in calls:
        assert_refused(case, call, kind, words)


def test_strings(case):
    x, out = case.x, case.out
    raw = torch.zeros(4, 34, dtype=torch.uint8, device=case.device)
    calls = [
        (
            lambda: llm_speed.gated_act(x, act="relu", out=out),
            'gated_act: act is "relu", must be one of silu, gelu, gelu_tanh',
        ),
        (lambda: llm_speed.linear(x, x, compute="f64", out=out[:, :4]), 'linear: compute is "f64"'),
        (lambda: llm_speed.rope(x.view(4, 1, 64), style="llama", out=out.view(4, 1, 64)), 'rope: style is "llama"'),
        (lambda: llm_speed.rope(x.view(4, 1, 64), scaling="ntk", out=out.view(4, 1, 64)), 'rope: scaling is "ntk"'),
        (lambda: llm_speed.linear(x[:, :32], raw, weight_type="q9", out=out[:, :4]), 'linear: weight has type "q9"'),
        (
            lambda: llm_speed.linear(x[:, :32], raw[:, :33], weight_type="q8_0", out=out[:, :4]),
            "linear: weight has rows of 33 bytes",
        ),
        (
            lambda: llm_speed.linear(x[:, :32], raw[::2], weight_type="q8_0", out=out[:, :2]),
            "linear: weight must be contiguous to hold q8_0",
        ),
    ]
    for call, words in calls:
        assert_refused(case, call, ValueError, words)
    assert_refused(
        case,
        lambda: llm_speed.linear(x, x, weight_type="q8_0", out=out[:, :4]),
        TypeError,
        "linear: weight must be uint8",
    )
    ids = torch.zeros(2, dtype=torch.int32, device=case.device)
    assert_refused(case, lambda: llm_speed.embed(ids, x, dtype="f64"), ValueError, 'embed: dtype is "f64"')
    assert_refused(case, lambda: llm_speed.gemm(x, x.T, out_dtype="int"), ValueError, 'gemm: out_dtype is "int"')
    assert_refused(case, lambda: llm_speed.linear(x, x, out_dtype="F32"), ValueError, 'linear: out_dtype is "F32"')


@pytest.mark.parametrize("op", ["rmsnorm", "gated_act"])
def test_variants(case, op):
    function = getattr(llm_speed, op)
    assert_refused(
        case,
        lambda: function(case.x, out=case.out, variant="none such"),
        NotImplementedError,
        f"{op}: .*none such",
        "LLS_ERR_VARIANT",
    )
    other = "cuda" if case.device == "cpu" else "cpu"
    for row in llm_speed.variants():
        if row["op"] == op and row["device"] == other:
            name = row["variant"]
            same_name = any(
                r["op"] == op and r["device"] == case.device and r["variant"] == name for r in llm_speed.variants()
            )
            if not same_name:
                assert_refused(
                    case,
                    lambda: function(case.x, out=case.out, variant=name),
                    NotImplementedError,
                    f"{op}: .*{name}",
                    "LLS_ERR_VARIANT",
                )


@needs_cuda
def test_devices_mixed():
    case, cpu = Case("cuda"), torch.ones(4, 64)
    x, out = case.x, case.out
    calls = [
        (lambda: llm_speed.rmsnorm(x, cpu[0], out=out), "rmsnorm: weight"),
        (lambda: llm_speed.rmsnorm(cpu, out=out), "rmsnorm: out"),
        (lambda: llm_speed.rmsnorm(cpu, case.w, out=torch.empty(4, 64)), "rmsnorm: weight"),
        (lambda: llm_speed.linear(x, llm_speed.linear_pack(cpu), out=out[:, :4]), "linear: weight"),
        (lambda: llm_speed.sample(x, temperature=cpu[:, 0]), "sample: temperature"),
        (lambda: llm_speed.rmsnorm(x, out=np.full((4, 64), np.nan, np.float32)), "rmsnorm: out"),
    ]
    for call, words in calls:
        assert_refused(case, call, ValueError, words, "LLS_ERR_DEVICE")


def test_device_that_is_neither_cpu_nor_cuda():
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (4, 0)  # OpenCL

        def __dlpack__(self, **_: Any) -> Any:
            raise RuntimeError("this memory is on another device")

    case = Case("cpu")
    assert_refused(case, lambda: llm_speed.rmsnorm(Elsewhere(), out=case.out), (ValueError, TypeError), "rmsnorm: x")


# ---- The classes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kinds"),
    [
        (100, (errors.ArgumentError, ValueError)),
        (102, (errors.DtypeError, TypeError)),
        (105, (errors.ArgumentError, ValueError)),
        (200, (errors.UnsupportedError, NotImplementedError)),
        (201, (errors.UnsupportedError, NotImplementedError)),
        (300, (errors.DeviceError, RuntimeError)),
        (301, (errors.DeviceError, RuntimeError)),
        (400, (errors.OutOfMemoryError, MemoryError)),
        (402, (errors.ArgumentError, ValueError)),
        (500, (errors.FileError, OSError)),
        (503, (errors.TextError, ValueError)),
        (600, (errors.InternalError, RuntimeError)),
        (999, (errors.InternalError, RuntimeError)),
    ],
)
def test_class_by_status(status, kinds):
    error = errors.from_status(status, "LLS_ERR_SOME", "rmsnorm: words")
    assert isinstance(error, llm_speed.Error) and all(isinstance(error, kind) for kind in kinds)
    assert error.status == "LLS_ERR_SOME" and str(error) == "rmsnorm: words"
    assert str(errors.from_status(status, "LLS_ERR_SOME", "")) == "LLS_ERR_SOME"


def test_compiled_functions_count_their_arguments():
    for op in llm_speed._C.op_names():
        with pytest.raises(TypeError, match=rf"_C.{op} takes \d+ positional arguments, got 1"):
            getattr(llm_speed._C, op)(None)
