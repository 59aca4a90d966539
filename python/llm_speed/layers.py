"""Layers by the names that vLLM, FlashInfer and textbooks give them, over `llm_speed.ops`."""

from __future__ import annotations

import functools
from typing import Any, Optional, Tuple, Union

from . import _C, ops
from .arrays import dtype_name
from .errors import ArgumentError, DtypeError, UnsupportedError
from .ops import Array

# ---- Norms -------------------------------------------------------------------------------------------

rms_norm = ops.rmsnorm
layer_norm = ops.layernorm


def fused_add_rms_norm(
    x: Array, residual: Array, weight: Array, eps: float = 1e-6, *, variant: Optional[str] = None
) -> None:
    """In place: residual becomes x + residual, x becomes rms_norm of that. Shapes and dtypes as in `rms_norm`."""
    ops.add_rmsnorm(x, residual, weight, eps, out=x, residual_out=residual, variant=variant)


def gemma_rms_norm(
    x: Array, weight: Array, eps: float = 1e-6, *, out: Optional[Array] = None, variant: Optional[str] = None
) -> Array:
    """`rms_norm` with the weight that Gemma's checkpoints store: the factor is weight + 1."""
    return ops.rmsnorm(x, weight, eps, weight_offset=1.0, out=out, variant=variant)


# ---- Gated activations -------------------------------------------------------------------------------


def _act_and_mul(function: str, act: str, x: Array, out: Optional[Array], variant: Optional[str]) -> Array:
    if x.shape[-1] % 2:
        raise ArgumentError(f"{function}: x has a last axis of {x.shape[-1]}, must be even")
    half = x.shape[-1] // 2
    return ops.gated_act(x[..., :half], x[..., half:], act=act, out=out, variant=variant)


def silu_and_mul(x: Array, out: Optional[Array] = None, *, variant: Optional[str] = None) -> Array:
    """silu(x[..., :d]) * x[..., d:], for x [..., 2 * d] float. out [..., d]."""
    return _act_and_mul("silu_and_mul", "silu", x, out, variant)


def gelu_and_mul(x: Array, out: Optional[Array] = None, *, variant: Optional[str] = None) -> Array:
    """gelu(x[..., :d]) * x[..., d:] with the exact GELU (erf). Shapes as in `silu_and_mul`."""
    return _act_and_mul("gelu_and_mul", "gelu", x, out, variant)


def gelu_tanh_and_mul(x: Array, out: Optional[Array] = None, *, variant: Optional[str] = None) -> Array:
    """gelu(x[..., :d]) * x[..., d:] with GELU's tanh approximation. Shapes as in `silu_and_mul`."""
    return _act_and_mul("gelu_tanh_and_mul", "gelu_tanh", x, out, variant)


# ---- Rotary embedding --------------------------------------------------------------------------------


def apply_rope(
    q: Array,
    k: Array,
    positions: Optional[Array] = None,
    *,
    cos: Optional[Array] = None,
    sin: Optional[Array] = None,
    style: str = "neox",
    rotary_dim: int = 0,
    theta: float = 10000.0,
    out: Optional[Tuple[Array, Array]] = None,
    variant: Optional[str] = None,
    **scaling: Any,
) -> Tuple[Array, Array]:
    """Rotates queries and keys by their positions in one call: returns the new (q, k).

    q [..., heads, head_dim], k [..., kv_heads, head_dim], the axes in front are tokens; positions [...] int32. cos, sin
    [table_len, rotary_dim/2] are tables of which token t reads row positions[t], or row t where positions is None.
    out is a pair, (q, k) for in place. `scaling` and its parameters, and the rest, as in `ops.rope`.
    """
    out_q, out_k = out if out is not None else (None, None)
    return ops.rope(
        q,
        positions,
        x2=k,
        cos=cos,
        sin=sin,
        style=style,
        rotary_dim=rotary_dim,
        theta=theta,
        out=out_q,
        out2=out_k,
        variant=variant,
        **scaling,
    )


# ---- Products ----------------------------------------------------------------------------------------


def _require(function: str, argument: str, array: Optional[Array], dtypes: Tuple[str, ...]) -> None:
    if array is not None and dtype_name(array) not in dtypes:
        raise DtypeError(f"{function}: {argument} is {dtype_name(array)}, must be {' or '.join(dtypes)}")


def hgemm(
    a: Array,
    b: Array,
    *,
    c: Optional[Array] = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
) -> Array:
    """alpha * a @ b + beta * c in half precision: all are float16, or all bfloat16 (else TypeError).

    Shapes as in `ops.gemm`. Sums are float32, rounded once at the end.
    """
    for name, array in (("a", a), ("b", b), ("out", out)):
        _require("hgemm", name, array, ("f16", "bf16"))
    return ops.gemm(a, b, c=c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, out=out, variant=variant)


def tensor_core_gemm(
    a: Array,
    b: Array,
    *,
    scale_a: Union[Array, float, None] = None,
    scale_b: Union[Array, float, None] = None,
    c: Optional[Array] = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Optional[Array] = None,
    trans_a: bool = False,
    trans_b: bool = False,
    fast_accum: bool = False,
    out_dtype: Optional[str] = None,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
) -> Array:
    """alpha * (a * scale_a) @ (b * scale_b) + beta * c + bias in the formats that tensor cores multiply.

    a, b are float16, bfloat16, float8 (two formats may meet), int8, or float32, which is rounded to tf32 (else
    TypeError). The result has the sums' own dtype: float32, int32 of int8 without scales and bias. out_dtype rounds at
    the end. Shapes, scales and dtypes as in `ops.gemm`.
    """
    for name, array in (("a", a), ("b", b)):
        _require("tensor_core_gemm", name, array, ("f16", "bf16", "f8_e4m3", "f8_e5m2", "i8", "f32"))
    exact = dtype_name(a) == "i8" and all(x is None for x in (scale_a, scale_b, bias))
    return ops.gemm(
        a,
        b,
        c=c,
        alpha=alpha,
        beta=beta,
        trans_a=trans_a,
        trans_b=trans_b,
        bias=bias,
        scale_a=scale_a,
        scale_b=scale_b,
        tf32=dtype_name(a) == "f32",
        fast_accum=fast_accum,
        out_dtype=out_dtype or ("i32" if exact else "f32"),
        out=out,
        variant=variant,
    )


def int8_gemm(
    a: Array,
    b: Array,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
) -> Array:
    """a @ b of int8 as int32, exact. Shapes as in `ops.gemm`; TypeError for other dtypes."""
    for name, array in (("a", a), ("b", b)):
        _require("int8_gemm", name, array, ("i8",))
    return ops.gemm(a, b, trans_a=trans_a, trans_b=trans_b, out=out, variant=variant)


# ---- Attention, heads before tokens ------------------------------------------------------------------


def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    scale: float = 0.0,
    is_causal: bool = False,
    *,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
) -> Array:
    """softmax(scale * q k^T) v, scale 0 being head_dim^-0.5.

    q [batch, heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim], v and out with a head_dim of their own;
    heads is a multiple of kv_heads. With is_causal the last row sees every key, and each row before it one key less.
    Dao et al. 2022.
    """
    if out is not None and "jax" in type(out).__module__:
        raise UnsupportedError("flash_attention: out cannot be a JAX array, of which there are no views")
    tokens_major = None if out is None else out.swapaxes(1, 2)
    result: Array = ops.attn_prefill(
        q.swapaxes(1, 2),
        k.swapaxes(1, 2),
        v.swapaxes(1, 2),
        causal=is_causal,
        scale=scale or None,
        out=tokens_major,
        variant=variant,
    )
    return result.swapaxes(1, 2) if out is None else out


def naive_attention(
    q: Array, k: Array, v: Array, scale: float = 0.0, is_causal: bool = False, *, out: Optional[Array] = None
) -> Array:
    """`flash_attention` by the first rung of its ladder: every score is formed, as the textbook has it."""
    variant = "ref" if _device_type(q) == "cpu" else "01_naive"
    return flash_attention(q, k, v, scale, is_causal, out=out, variant=variant)


def tiled_attention(
    q: Array, k: Array, v: Array, scale: float = 0.0, is_causal: bool = False, *, out: Optional[Array] = None
) -> Array:
    """`flash_attention` by the rung that walks the keys in blocks, with a running maximum and sum.

    On the CPU that is the best vector level. NotImplementedError where this build has no tiled rung for the device.
    """
    return flash_attention(q, k, v, scale, is_causal, out=out, variant=_tiled_rung(_device_type(q)))


def _device_type(x: Array) -> str:
    kind: Optional[str] = getattr(getattr(x, "device", None), "type", None)
    if kind is not None:  # torch's, which torch.compile can trace
        return kind
    return "cpu" if x.__dlpack_device__()[0] == 1 else "cuda"


@functools.lru_cache(maxsize=None)  # the table of variants is the same all through a process
def _tiled_rung(device: str) -> str:
    mark = "cpu_" if device == "cpu" else "tiled"
    for row in _C.variants():
        if (row["op"], row["device"]) == ("attn_prefill", device) and mark in row["variant"] and not row["unavailable"]:
            return row["variant"]
    raise UnsupportedError(f"tiled_attention: this build has no tiled rung of attn_prefill for {device}")
