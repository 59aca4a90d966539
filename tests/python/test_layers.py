"""Layers by their usual names, against plain torch in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracle import attend, check

import llm_speed
from llm_speed import (
    apply_rope,
    flash_attention,
    fused_add_rms_norm,
    gelu_and_mul,
    gelu_tanh_and_mul,
    gemma_rms_norm,
    hgemm,
    int8_gemm,
    layer_norm,
    naive_attention,
    ops,
    rms_norm,
    silu_and_mul,
    tensor_core_gemm,
    tiled_attention,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
HALVES = DTYPES[1:]


def random(device, dtype, *shape):
    return torch.randn(shape).to(device, dtype)


def check_against(got, formula, *inputs):
    """got, against formula(*inputs) in float64 and in the inputs' own dtype."""
    inputs = [x.cpu() for x in inputs]
    check(got, formula(*(x.double() for x in inputs)), formula(*inputs))


# ---- Norms -------------------------------------------------------------------------------------------


def plain_rms(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def test_the_names_are_the_ops():
    assert rms_norm is ops.rmsnorm and layer_norm is ops.layernorm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 65), (2, 3, 128), (7,)])
def test_norms(device, dtype, shape):
    x, weight, bias = random(device, dtype, *shape), *random(device, dtype, 2, shape[-1])
    check_against(rms_norm(x, weight, 1e-5), lambda x, w: plain_rms(x, w, 1e-5), x, weight)
    check_against(gemma_rms_norm(x, weight), lambda x, w: plain_rms(x, w + 1), x, weight)
    check_against(layer_norm(x, weight, bias), lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, weight, bias)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_add_rms_norm_in_place(device, dtype):
    x, residual, weight = random(device, dtype, 2, 5, 64), random(device, dtype, 2, 5, 64), random(device, dtype, 64)
    total = x + residual
    expected = rms_norm(total, weight, 1e-5)
    assert fused_add_rms_norm(x, residual, weight, 1e-5) is None
    assert torch.equal(residual, total) and torch.equal(x, expected)


# ---- Gated activations -------------------------------------------------------------------------------

GATED = {
    silu_and_mul: F.silu,
    gelu_and_mul: F.gelu,
    gelu_tanh_and_mul: lambda x: F.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", GATED)
@pytest.mark.parametrize("shape", [(3, 34), (2, 3, 64), (6,)])
def test_gated(device, dtype, function, shape):
    x = random(device, dtype, *shape)
    act, half = GATED[function], shape[-1] // 2
    got = function(x)
    check_against(got, lambda x: act(x[..., :half]) * x[..., half:], x)
    out = torch.empty_like(got)
    assert function(x, out) is out and torch.equal(out, got)


def test_gated_of_numpy():
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    check_against(silu_and_mul(x), lambda x: F.silu(x[:, :4]) * x[:, 4:], torch.from_numpy(x))


# ---- Rotary embedding --------------------------------------------------------------------------------


def plain_rope(x, cos, sin, style):
    """x [.., heads, dim] with all of dim rotated; cos, sin [.., dim / 2]."""
    cos, sin = cos.unsqueeze(-2).to(x.dtype), sin.unsqueeze(-2).to(x.dtype)
    a, b = x.chunk(2, -1) if style == "neox" else (x[..., ::2], x[..., 1::2])
    pairs = a * cos - b * sin, b * cos + a * sin
    return torch.cat(pairs, -1) if style == "neox" else torch.stack(pairs, -1).flatten(-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("tables", [False, True])
def test_apply_rope(device, dtype, style, tables):
    q, k = random(device, dtype, 2, 5, 4, 16), random(device, dtype, 2, 5, 2, 16)
    positions = torch.randint(0, 40, (2, 5))
    angles = torch.arange(40)[:, None] * 500.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    cos, sin = angles.cos(), angles.sin()
    options = dict(cos=cos.float().to(device), sin=sin.float().to(device)) if tables else dict(theta=500.0)
    at = positions.to(device, torch.int32)
    got = apply_rope(q, k, at, style=style, **options)
    for rotated, x in zip(got, (q, k)):
        check_against(rotated, lambda x: plain_rope(x, cos[positions], sin[positions], style), x)
    assert apply_rope(q, k, at, style=style, out=(q, k), **options)[0] is q
    assert torch.equal(q, got[0]) and torch.equal(k, got[1])


def test_apply_rope_by_order_and_scaling(device):
    q, k = random(device, torch.float32, 5, 4, 16), random(device, torch.float32, 5, 2, 16)
    angles = torch.rand(5, 8)
    got = apply_rope(q, k, cos=angles.cos().to(device), sin=angles.sin().to(device))
    check_against(got[0], lambda x: plain_rope(x, angles.cos(), angles.sin(), "neox"), q)
    positions = torch.arange(5, dtype=torch.int32, device=device)
    doubled = apply_rope(q, k, positions * 2, scaling="linear", factor=2.0)
    for a, b in zip(doubled, apply_rope(q, k, positions)):
        torch.testing.assert_close(a, b)


# ---- Products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_half_products(device, dtype, batch):
    a, b = random(device, dtype, *batch, 9, 33), random(device, dtype, *batch, 33, 17)
    c = random(device, dtype, *batch, 9, 17)
    check_against(hgemm(a, b), torch.matmul, a, b)
    check_against(hgemm(a, b, c=c, alpha=0.5, beta=2.0), lambda a, b, c: 0.5 * (a @ b) + 2 * c, a, b, c)
    check_against(tensor_core_gemm(a, b, out_dtype=str_of(dtype)), torch.matmul, a, b)
    wide = tensor_core_gemm(a, b)
    check(wide, a.cpu().double() @ b.cpu().double(), a.cpu().float() @ b.cpu().float())
    assert torch.equal(tensor_core_gemm(a.mT.contiguous(), b.mT, trans_a=True, trans_b=True), wide)
    out = torch.empty_like(wide)
    assert tensor_core_gemm(a, b, out=out) is out and torch.equal(out, wide)


def str_of(dtype):
    return {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]


def test_int8_products(device):
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((9, 300), (300, 17)))
    exact = a.long() @ b.long()
    a, b = a.to(device), b.to(device)
    for got in (int8_gemm(a, b), tensor_core_gemm(a, b), int8_gemm(a.T.contiguous(), b, trans_a=True)):
        check(got, exact, exact.int())


def test_scaled_products(device):
    """Whole numbers that each format holds, and scales that are powers of two."""
    a, b = (torch.randint(-4, 5, shape, device=device) for shape in ((9, 300), (300, 17)))
    exact = a.double() @ b.double()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.float16, torch.float32):
        left, right = a.to(dtype), b.to(dtype)
        got = tensor_core_gemm(left, right, scale_a=0.5, scale_b=2.0 ** torch.arange(17, device=device)[None])
        assert got.dtype == torch.float32
        assert torch.equal(got.double(), 0.5 * exact * 2.0 ** torch.arange(17, device=device))
    mixed = tensor_core_gemm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e5m2), out_dtype="bf16")
    assert torch.equal(mixed, exact.to(torch.bfloat16))


def test_product_dtypes(device):
    f32, f16, i8 = (torch.ones(4, 4, device=device).to(dtype) for dtype in (torch.float32, torch.float16, torch.int8))
    for call in (
        lambda: hgemm(f32, f32),
        lambda: hgemm(i8, i8),
        lambda: hgemm(f16, f16, out=f32),
        lambda: tensor_core_gemm(f16.double(), f16.double()),
        lambda: tensor_core_gemm(f16, f32),
        lambda: tensor_core_gemm(f16, i8),
        lambda: int8_gemm(f16, f16),
        lambda: int8_gemm(i8, f16),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert isinstance(caught.value, llm_speed.Error)


# ---- Attention, heads before tokens ------------------------------------------------------------------


@pytest.mark.parametrize("function", [flash_attention, naive_attention, tiled_attention])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.4])
def test_attention(device, function, dtype, is_causal, scale):
    if function is tiled_attention and not has_tiled_rung(device):
        pytest.skip("this build has no tiled rung for the device")
    q, k, v = (random(device, dtype, 2, heads, rows, 24) for heads, rows in ((4, 9), (2, 11), (2, 11)))
    got = function(q, k, v, scale, is_causal)
    check_against(got, lambda q, k, v: attend(q, k, v, scale=scale or None, causal=is_causal)[0], q, k, v)
    out = torch.full_like(q, torch.nan)
    assert function(q, k, v, scale, is_causal, out=out) is out and torch.equal(out, got)


def has_tiled_rung(device):
    names = [row["variant"] for row in llm_speed.variants() if (row["op"], row["device"]) == ("attn_prefill", device)]
    return device == "cpu" or any("tiled" in name for name in names)


def test_attention_rungs(device):
    q, k, v = (random(device, torch.float32, 1, 2, 9, 16) for _ in range(3))
    first = "ref" if device == "cpu" else "01_naive"
    assert torch.equal(naive_attention(q, k, v), flash_attention(q, k, v, variant=first))
    if device == "cpu":
        rows = [row for row in llm_speed.variants() if row["op"] == "attn_prefill" and not row["unavailable"]]
        best = next(row["variant"] for row in rows if row["variant"].startswith("cpu_"))
        assert torch.equal(tiled_attention(q, k, v), flash_attention(q, k, v, variant=best))
    elif not has_tiled_rung(device):
        with pytest.raises(NotImplementedError, match="tiled"):
            tiled_attention(q, k, v)


def test_attention_into_jax_is_refused():
    jax = pytest.importorskip("jax")
    q = jax.numpy.ones((1, 2, 5, 8))
    assert flash_attention(q, q, q).shape == q.shape
    with pytest.raises(NotImplementedError, match="JAX"):
        flash_attention(q, q, q, out=jax.numpy.zeros_like(q))


def test_attention_of_numpy():
    q, k, v = (np.random.default_rng(i).standard_normal((1, 2, 5, 8), np.float32) for i in range(3))
    expected = flash_attention(*(torch.from_numpy(x) for x in (q, k, v)))
    for function in (flash_attention, naive_attention, tiled_attention):
        torch.testing.assert_close(torch.from_numpy(function(q, k, v)), expected)


# ---- torch.compile, errors ---------------------------------------------------------------------------


def test_compile(device):
    weight = random(device, torch.bfloat16, 32)
    matrix = random(device, torch.bfloat16, 32, 64)
    positions = torch.arange(6, dtype=torch.int32, device=device)

    def layer(x, residual):
        x, residual = x.clone(), residual.clone()
        fused_add_rms_norm(x, residual, weight)
        x = gemma_rms_norm(x, weight)
        gated = silu_and_mul(hgemm(x, matrix)) + tensor_core_gemm(x, matrix[:, :32], out_dtype="bf16")
        heads = gated.unflatten(-1, (2, 16))
        q, k = apply_rope(heads, heads, positions)
        q, k, v = (t.transpose(0, 1)[None] for t in (q, k, heads))
        return flash_attention(q, k, v, is_causal=True), naive_attention(q, k, v), residual

    torch._dynamo.reset()
    inputs = random(device, torch.bfloat16, 6, 32), random(device, torch.bfloat16, 6, 32)
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(*inputs)
    for a, b in zip(got, layer(*inputs)):
        assert torch.equal(a, b)


def test_errors(device):
    x = random(device, torch.float32, 3, 7)
    with pytest.raises(ValueError, match="silu_and_mul: x has a last axis of 7"):
        silu_and_mul(x)
    with pytest.raises(ValueError, match="residual"):
        fused_add_rms_norm(x, x[:2].clone(), torch.ones(7, device=device))
    q = random(device, torch.float32, 1, 2, 3, 8)
    with pytest.raises(NotImplementedError, match="variant"):
        flash_attention(q, q, q, variant="no_such_rung")
    with pytest.raises(TypeError, match="scalin"):
        apply_rope(x, x, scalin="yarn")
