"""gemm, gemm_grouped, linear, linear_pack, and block weights in embed, against plain torch in float64."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
import llm_speed
from oracle import check

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import gguf_reader  # noqa: E402  (the tests' own reader: dequantises in float64)

sizes = st.sampled_from([0, 1, 2, 7, 16, 33, 65])
BLOCKS = {
    name.lower(): kind for name, kind in gguf_reader.TENSOR_TYPES.items() if name.lower() not in ("f32", "f16", "bf16")
}


def plain_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in float32, term after term: the plain implementation whose error is the yardstick."""
    a, b = a.float(), b.float()
    total = torch.zeros((*(a.shape[:-2] or b.shape[:-2]), a.shape[-2], b.shape[-1]), device=a.device)
    for i in range(a.shape[-1]):
        total = total + a[..., :, i, None] * b[..., None, i, :]
    return total


# ---- gemm --------------------------------------------------------------------------------------------


def operand(draw: Any, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return cases.laid_out(cases.normal(shape, dtype, device), draw(cases.layouts))


@pytest.mark.parametrize("batched", [False, True])
@cases.settings
@given(data=st.data())
def test_gemm(device, batched, data):
    draw = data.draw
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    dtype = draw(cases.float_dtypes)
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    batch_a = batch_b = ()
    if batched:
        batch = (draw(st.sampled_from([0, 1, 3])),)
        batch_a, batch_b = draw(st.sampled_from([(batch, batch), (batch, ()), ((), batch)]))
    a = operand(draw, (*batch_a, k, m) if trans_a else (*batch_a, m, k), dtype, device)
    b = operand(draw, (*batch_b, n, k) if trans_b else (*batch_b, k, n), dtype, device)
    out_name = draw(st.sampled_from([None, "f32", cases.dtype_names[dtype]]))
    out_dtype = cases.DTYPES[out_name] if out_name else dtype
    shape = (*(batch_a or batch_b), m, n)
    alpha, beta = draw(st.sampled_from([1.0, 0.5, -2.0, 0.0])), draw(st.sampled_from([0.0, 1.0, -0.5]))
    c = None if beta == 0 and draw(st.booleans()) else operand(draw, shape, out_dtype, device)
    if c is not None and beta == 0:
        c = torch.full_like(c, float("nan"))  # never read
    form = draw(st.sampled_from(["fresh", "out", "over_c"]))
    out = cases.Out(shape, out_dtype, device, draw(st.sampled_from(["row_strided", "offset", "transposed"])))
    target = {"fresh": None, "out": out.tensor, "over_c": c}[form]
    if form == "over_c" and c is not None and 0 in c.stride():
        c = target = c.contiguous()  # an output's elements must not coincide

    left, right = (t.swapaxes(-1, -2) if trans else t for t, trans in ((a, trans_a), (b, trans_b)))
    exact, working = alpha * (left.double() @ right.double()), alpha * plain_product(left, right)
    if beta:
        exact, working = exact + beta * c.double(), working + beta * c.float()
    working = working.to(out_dtype)
    options = dict(c=c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, out_dtype=out_name, out=target)
    got = cases.run_variant(
        llm_speed.gemm, a, b, variant=draw(st.sampled_from(cases.variants("gemm", device))), **options
    )
    assert target is None or got is target
    if form == "out":
        out.check(got)
    check(got, exact, working)


@cases.settings
@given(data=st.data())
def test_gemm_of_integers_is_exact(device, data):
    """Small whole numbers in float: sums that float32 holds exactly come out exactly, whatever the order."""
    m, n, k = (data.draw(sizes) for _ in range(3))
    dtype = data.draw(cases.float_dtypes)
    a, b = (torch.randint(-8, 9, s, device=device).to(dtype) for s in ((m, k), (k, n)))
    variant = data.draw(st.sampled_from(cases.variants("gemm", device)))
    got = cases.run_variant(llm_speed.gemm, a, b, out_dtype="f32", variant=variant)
    assert torch.equal(got.double(), a.double() @ b.double())


@cases.settings
@given(data=st.data())
def test_gemm_int8(device, data):
    m, n, k = (data.draw(sizes) for _ in range(3))
    a, b = (torch.randint(-128, 128, s, device=device, dtype=torch.int8) for s in ((m, k), (k, n)))
    c = torch.randint(-1000, 1000, (m, n), device=device, dtype=torch.int32) if data.draw(st.booleans()) else None
    variant = data.draw(st.sampled_from(cases.variants("gemm", device)))
    got = cases.run_variant(llm_speed.gemm, a, b, c=c, beta=0.0 if c is None else 1.0, variant=variant)
    exact = a.double() @ b.double() + (0 if c is None else c.double())
    assert got.dtype == torch.int32 and torch.equal(got.double(), exact)


ACTS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}
F8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def finished(x: torch.Tensor, act: str, gated: bool, residual: Optional[torch.Tensor]) -> torch.Tensor:
    y = ACTS[act](x[..., 0::2]) * x[..., 1::2] if gated else ACTS[act](x)
    return y if residual is None else y + residual.to(y.dtype)


@cases.settings
@given(data=st.data())
def test_gemm_epilogue(device, data):
    draw = data.draw
    m, k = draw(sizes), draw(sizes)
    gated = draw(st.booleans())
    n = draw(st.sampled_from([2, 16, 66])) if gated else draw(sizes)
    dtype, act = draw(cases.float_dtypes), draw(st.sampled_from(list(ACTS)))
    a, b = operand(draw, (m, k), dtype, device), operand(draw, (k, n), dtype, device)
    bias = cases.normal((n,), draw(cases.float_dtypes), device) if draw(st.booleans()) else None
    residual = operand(draw, (m, n // 2 if gated else n), dtype, device) if draw(st.booleans()) else None
    variant = draw(st.sampled_from(cases.variants("gemm", device)))
    got = cases.run_variant(llm_speed.gemm, a, b, bias=bias, act=act, gated=gated, residual=residual, variant=variant)
    exact, working = a.double() @ b.double(), plain_product(a, b)
    if bias is not None:
        exact, working = exact + bias.double(), working + bias.float()
    check(got, finished(exact, act, gated, residual), finished(working, act, gated, residual).to(dtype))


def whole_numbers(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randint(-4, 5, shape).to(dtype).to(device)


def powers_of_two(shape: tuple[int, ...], device: str) -> torch.Tensor:
    return 2.0 ** torch.randint(-2, 3, shape).to(device)


def spread(scale: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """A scale repeated to the elements that it is of."""
    for axis in (0, 1):
        block = 128 if scale.shape[axis] not in (1, shape[axis]) else 1
        scale = scale.repeat_interleave(block, axis).narrow(axis, 0, min(shape[axis], scale.shape[axis] * block))
    return scale.double()


@pytest.mark.parametrize("kind", ["tensor", "row and column", "block"])
@pytest.mark.parametrize("types", [(F8[0], F8[0]), (F8[0], F8[1]), (F8[1], F8[0]), (torch.int8, torch.int8)])
def test_scaled_products_are_exact(device, types, kind):
    """Small whole numbers and powers of two: one rounding is left, that of the result."""
    m, n, k = 5, 200, 300
    if kind == "block" and types[0] == torch.int8:
        pytest.skip("block scales are those of float8")
    a, b = whole_numbers((m, k), types[0], device), whole_numbers((k, n), types[1], device)
    shapes = {"tensor": ((1, 1), (1, 1)), "row and column": ((m, 1), (1, n)), "block": ((m, 3), (3, 2))}
    scale_a, scale_b = (powers_of_two(shape, device) for shape in shapes[kind])
    exact = (a.double() * spread(scale_a, (m, k))) @ (b.double() * spread(scale_b, (k, n)))
    for variant in cases.variants("gemm", device):
        got = cases.run_variant(llm_speed.gemm, a, b, scale_a=scale_a, scale_b=scale_b, variant=variant)
        assert got.dtype == torch.float32 and torch.equal(got.double(), exact)
        half = cases.run_variant(
            llm_speed.gemm, a, b, scale_a=scale_a, scale_b=scale_b, out_dtype="bf16", variant=variant
        )
        assert torch.equal(half, exact.to(torch.bfloat16))


def test_quantised_results(device):
    """Results saturate, and round to nearest even."""
    values = torch.tensor([[448.0, 465.0, -1000.0, 1.0625, 1.1875, 2.5, 126.5, 300.0]], device=device)
    one = torch.ones(1, 1, device=device)
    for name, dtype in (("f8_e4m3", F8[0]), ("f8_e5m2", F8[1]), ("i8", torch.int8)):
        got = llm_speed.gemm(one, values, out_dtype=name, scale_out=0.5)
        low, high = (-128, 127) if name == "i8" else (torch.finfo(dtype).min, torch.finfo(dtype).max)
        wanted = (values * 2).clamp(low, high)
        assert got.dtype == dtype
        assert torch.equal(got.float(), (wanted.round() if name == "i8" else wanted).to(dtype).float())


def test_numbers_as_scales(device):
    a, b = whole_numbers((3, 40), F8[0], device), whole_numbers((40, 6), F8[0], device)
    as_arrays = {name: torch.full((1,), value, device=device) for name, value in (("scale_a", 0.5), ("scale_b", 4.0))}
    assert torch.equal(llm_speed.gemm(a, b, scale_a=0.5, scale_b=4), llm_speed.gemm(a, b, **as_arrays))


def test_gemm_flags(device):
    a, b = cases.normal((300, 72), torch.float32, device), cases.normal((72, 40), torch.float32, device)
    torch.testing.assert_close(llm_speed.gemm(a, b, tf32=True), a @ b, rtol=0.02, atol=0.05)
    every = llm_speed.gemm(a, b, batch_invariant=True)
    for rows in (1, 7, 129):
        assert torch.equal(llm_speed.gemm(a[:rows], b, batch_invariant=True), every[:rows])
    whole = whole_numbers((9, 256), F8[0], device)
    assert torch.equal(llm_speed.gemm(whole, whole.T, fast_accum=True).double(), whole.double() @ whole.double().T)


# ---- gemm_grouped ------------------------------------------------------------------------------------


@cases.settings
@given(data=st.data())
def test_gemm_grouped(device, data):
    draw = data.draw
    counts = draw(st.lists(st.sampled_from([0, 1, 5, 33]), min_size=0, max_size=5))
    before, after = draw(st.sampled_from([0, 3])), draw(st.sampled_from([0, 4]))
    bounds = np.cumsum([before, *counts])
    tokens, groups = int(bounds[-1]) + after, len(counts)
    n, k, gated = draw(st.sampled_from([2, 16, 34])), draw(sizes), draw(st.booleans())
    dtype, trans_b = draw(cases.float_dtypes), draw(st.booleans())
    a = operand(draw, (tokens, k), dtype, device)
    b = cases.normal((groups, n, k) if trans_b else (groups, k, n), dtype, device)
    bias = cases.normal((groups, n), torch.float32, device) if draw(st.booleans()) else None
    offsets = torch.tensor(bounds, dtype=torch.int32, device=device)
    out = torch.full((tokens, n // 2 if gated else n), 3.0, dtype=dtype, device=device)
    variant = draw(st.sampled_from(cases.variants("gemm_grouped", device)))
    options = dict(bias=bias, act="silu", gated=gated, trans_b=trans_b, out=out)
    got = cases.run_variant(llm_speed.gemm_grouped, a, b, offsets, variant=variant, **options)
    assert got is out
    exact, working = out.double().fill_(3), out.float().fill_(3)
    for g in range(groups):
        rows, matrix = slice(bounds[g], bounds[g + 1]), b[g].mT if trans_b else b[g]
        shift = 0 if bias is None else bias[g]
        exact[rows] = finished(a[rows].double() @ matrix.double() + shift, "silu", gated, None)
        working[rows] = finished(plain_product(a[rows], matrix) + shift, "silu", gated, None)
    check(got, exact, working.to(dtype))


def test_gemm_grouped_of_float8(device):
    a, b = whole_numbers((10, 200), F8[0], device), whole_numbers((3, 200, 24), F8[1], device)
    offsets = torch.tensor([0, 4, 4, 10], dtype=torch.int32, device=device)
    scale_a, scale_b = powers_of_two((10, 2), device), powers_of_two((3, 2, 1), device)
    got = llm_speed.gemm_grouped(a, b, offsets, scale_a=scale_a, scale_b=scale_b)
    assert got.dtype == torch.float32
    for rows, g in ((slice(0, 4), 0), (slice(4, 10), 2)):
        left = a[rows].double() * spread(scale_a[rows], (rows.stop - rows.start, 200))
        assert torch.equal(got[rows].double(), left @ (b[g].double() * spread(scale_b[g], (200, 24))))


# ---- block weights -----------------------------------------------------------------------------------


def blocks_of(type_name: str, rows: int, num_blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random blocks of a GGUF type: uint8 [rows, bytes], and the weights [rows, k] that they hold, in float64."""
    kind = BLOCKS[type_name]
    assert llm_speed._C.block_size(type_name) == (kind.block, kind.nbytes)
    raw = np.random.default_rng(rows * 1000 + num_blocks).integers(0, 256, (rows, num_blocks, kind.nbytes), np.uint8)
    # The scales are half floats: random ones would be infinite now and then, so their exponents are set.
    for at in {"q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "q4_1": (0, 2), "q5_1": (0, 2)}.get(type_name, (0,)):
        raw[..., at + 1] = raw[..., at + 1] & 0x83 | 0x20
    weights = gguf_reader.dequantize(type_name.upper(), raw.reshape(-1))
    return torch.from_numpy(raw.reshape(rows, -1)), torch.from_numpy(weights).reshape(rows, -1)


@pytest.mark.parametrize("type_name", BLOCKS)
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_embed_blocks(device, type_name, dtype):
    raw, weights = blocks_of(type_name, 11, 2)
    ids = torch.tensor([[3, 0], [10, 3]], dtype=torch.int32, device=device)
    for variant in cases.variants("embed", device):
        got = cases.run_variant(
            llm_speed.embed, ids, raw.to(device), scale=1.5, table_type=type_name, dtype=dtype, variant=variant
        )
        exact = weights[ids.cpu().long()] * 1.5
        check(got, exact, exact.to(cases.DTYPES[dtype]))


@pytest.mark.parametrize("type_name", BLOCKS)
@cases.settings
@given(data=st.data())
def test_linear_blocks(device, type_name, data):
    draw = data.draw
    rows, n, num_blocks = (
        draw(st.sampled_from([0, 1, 3, 17])),
        draw(st.sampled_from([1, 5, 32, 47])),
        draw(st.integers(1, 3)),
    )
    dtype, out_name = draw(cases.float_dtypes), draw(st.sampled_from([None, "f32", "f16", "bf16"]))
    raw, weights = blocks_of(type_name, n, num_blocks)
    x = cases.laid_out(cases.normal((rows, weights.shape[1]), dtype, device), draw(cases.layouts))
    bias = draw(st.sampled_from([None, cases.normal((n,), torch.float32, device)]))
    packed = device == "cpu" and draw(st.booleans(), label="packed")
    compute = draw(st.sampled_from(["default", "f32"]))
    weight = llm_speed.linear_pack(raw, weight_type=type_name) if packed else raw.to(device)
    got = cases.run_variant(
        llm_speed.linear,
        x,
        weight,
        bias,
        weight_type=type_name,
        compute=compute,
        out_dtype=out_name,
        variant=draw(st.sampled_from(linear_variants(device, packed))),
    )
    check_linear(
        got, x, weights.to(device), bias, cases.DTYPES[out_name] if out_name else dtype, packed and compute == "default"
    )


def linear_variants(device: str, packed: bool) -> list[Optional[str]]:
    """The reference reads weights as they lie in a file; all others read packed ones too."""
    return [v for v in cases.variants("linear", device) if not (packed and v == "ref")]


def check_linear(
    got: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    bias: Optional[torch.Tensor],
    out_dtype: torch.dtype,
    rounds_x: bool = False,
) -> None:
    """rounds_x: the path that rounds activations to 15-bit integers, 0.003 % of the largest value of each 32."""
    wide = x.double()
    exact = wide @ weights.double().T
    working = plain_product(x.reshape(-1, x.shape[-1]), weights.T).reshape(exact.shape).double()
    if bias is not None:
        exact, working = exact + bias.double(), working + bias.double()
    # The order of a float32 sum is free: an error of an ulp of its largest possible value, however lucky `working` was.
    working = working + torch.finfo(torch.float32).eps / 2 * (wide.abs() @ weights.double().abs().T)
    if rounds_x:
        # What that rounding may do to each sum, at most; half of it, since `check` allows twice the working error.
        largest = wide.unflatten(-1, (-1, 32)).abs().amax(-1, keepdim=True)
        slack = (3e-5 * largest).expand(*largest.shape[:-1], 32).flatten(-2) @ weights.double().abs().T
        working = working + slack / 2
    check(got, exact, working.to(out_dtype))


# ---- linear ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@cases.settings
@given(data=st.data())
def test_linear(device, packed, data):
    draw = data.draw
    if packed and device != "cpu":
        pytest.skip("weights are packed for the CPU")
    leading = draw(st.sampled_from([(), (0,), (1,), (4,), (2, 3)]))
    n, k = draw(st.sampled_from([1, 5, 32, 66])), draw(st.sampled_from([1, 8, 31, 64, 160]))
    dtype, weight_dtype = draw(cases.float_dtypes), draw(cases.float_dtypes)
    out_name = draw(st.sampled_from([None, "f32", "f16", "bf16"]))
    out_dtype = cases.DTYPES[out_name] if out_name else dtype
    x = cases.laid_out(cases.normal((*leading, k), dtype, device), draw(cases.layouts))
    weight = cases.laid_out(cases.normal((n, k), weight_dtype, device), draw(cases.layouts))
    bias_dtype = draw(st.sampled_from([None, torch.float32, out_dtype]))
    bias = None if bias_dtype is None else cases.normal((n,), bias_dtype, device)
    out = cases.Out((*leading, n), out_dtype, device, draw(cases.out_layouts))
    got = cases.run_variant(
        llm_speed.linear,
        x,
        llm_speed.linear_pack(weight.contiguous()) if packed else weight,
        bias,
        out_dtype=out_name,
        out=out.tensor,
        variant=draw(st.sampled_from(linear_variants(device, packed))),
    )
    out.check(got)
    check_linear(got, x, weight, bias, out_dtype)


def test_linear_pack_stacks_and_keeps_no_reference():
    """Several weights become one by rows; the packed copy is independent of its sources."""
    parts = [cases.normal((n, 64), torch.bfloat16, "cpu") for n in (3, 16, 5)]
    x = cases.normal((2, 64), torch.float32, "cpu")
    exact = x.double() @ torch.cat(parts).double().T
    packed = llm_speed.linear_pack(parts)
    assert packed.shape == (24, 64) and packed.dtype == "bf16" and packed.nbytes >= 24 * 64 * 2
    for part in parts:
        part.fill_(float("nan"))
    check(llm_speed.linear(x, packed), exact, exact.float())


def test_linear_pack_refuses():
    good = torch.ones(4, 64)
    for weights, word in (
        ([], "weights"),
        ([good, torch.ones(4, 32)], "weights"),
        ([good, good.half()], "weights"),
        ([good.double()], "weights"),
        (["weight"], "weights"),
    ):
        with pytest.raises((ValueError, TypeError), match=word) as caught:
            llm_speed.linear_pack(weights)
        assert isinstance(caught.value, llm_speed.Error)
    with pytest.raises(ValueError, match="weight"):
        llm_speed.linear_pack(torch.zeros(4, 35, dtype=torch.uint8), weight_type="q8_0")
    with pytest.raises(ValueError, match="weight"):
        llm_speed.linear_pack(good, weight_type="q9_9")
    packed = llm_speed.linear_pack(good)
    with pytest.raises(ValueError, match="linear: "):
        llm_speed.linear(torch.ones(1, 63), packed)
    with pytest.raises(TypeError, match="embed: table"):
        llm_speed.embed(torch.zeros(1, dtype=torch.int32), packed, out=torch.ones(1, 64))
