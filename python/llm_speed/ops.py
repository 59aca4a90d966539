"""The ops of the C library, one function each, in the order in which a transformer layer meets them.

Arrays may be torch tensors, NumPy, CuPy or JAX arrays, or anything else with DLPack or the buffer protocol; they are
read in place. Every function takes

- `out`: where to write; made anew when None. `out` arrays are written in place whatever their strides, or refused.
- `variant`: the name of the implementation to use (`llm_speed.variants()` lists them); None lets the library choose.
- `stream`: the integer handle of a CUDA stream; None takes the current stream of the first array's framework.

CUDA calls enqueue and return. Inputs whose strides an op cannot walk are copied once; all else is read as it lies.
Errors are those of `llm_speed.errors`, with nothing written. `include/llmspeed/ops.h` defines the arithmetic.

"float" below is float32, float16 or bfloat16; arithmetic is float32 whatever the dtype, rounded once at the end.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, Optional, Sequence, Tuple, Union

from . import _C
from .arrays import broadcast, dtype_name, empty, empty_like, full
from .errors import ArgumentError

Array = Any


def _never() -> bool:
    return False


# While torch.compile traces, calls must be torch operators: llm_speed.torch_ops sets both when torch is imported.
_compiling = _never
_graph: Any = _C

_ACTS = {"silu": 0, "gelu": 1, "gelu_tanh": 2}
_GEMM_ACTS = {"none": 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}
_OUT_DTYPES = ("f32", "f16", "bf16", "i32")
_PRODUCT_DTYPES = (*_OUT_DTYPES, "i8", "f8_e4m3", "f8_e5m2")
_COMPUTE = {"default": 0, "f32": 1}
_STYLES = {"neox": 0, "gptj": 1}
_SCALINGS = {"none": 0, "linear": 1, "llama3": 2, "yarn": 3}


def _choice(op: str, argument: str, value: str, choices: dict[str, int]) -> int:
    if value not in choices:
        raise ArgumentError(f'{op}: {argument} is "{value}", must be one of {", ".join(choices)}')
    return choices[value]


def _check_dtype(op: str, argument: str, name: Optional[str], dtypes: Sequence[str] = _OUT_DTYPES) -> None:
    if name is not None and name not in dtypes:
        raise ArgumentError(f'{op}: {argument} is "{name}", must be one of {", ".join(dtypes)}')


def _gemm_flags(tf32: bool, batch_invariant: bool, fast_accum: bool) -> int:
    return 1 * tf32 | 2 * batch_invariant | 4 * fast_accum


def _scale_array(a: Array, scale: Union[Array, float, None]) -> Optional[Array]:
    return full(a, (1,), float(scale), "f32") if isinstance(scale, Real) else scale


# ---- New outputs, for the ops below and for the fake kernels of llm_speed.torch_ops --------------------


def _new_embedding(ids: Array, table: Array, table_type: Optional[str], dtype: Optional[str]) -> Array:
    """[..., hidden]; float32 for a table of blocks."""
    hidden = table.shape[1]
    if table_type is not None:
        block_elems, block_bytes = _C.block_size(table_type)
        hidden = hidden // block_bytes * block_elems
    return empty(table, (*ids.shape, hidden), dtype or ("f32" if table_type else None))


def _product_dtype(a: Array, exact: bool) -> Optional[str]:
    """None: a's own; else that of the sums. exact: nothing that int32 has no place for."""
    name = dtype_name(a)
    return ("i32" if exact else "f32") if name == "i8" else "f32" if name.startswith("f8") else None


def _new_product(a: Array, b: Array, out_dtype: Optional[str], gated: bool, exact: bool) -> Array:
    """[batch, m, n] of a [batch, m, k] and b [batch, k, n], either without the batch; half as wide when gated."""
    n = b.shape[-1] // 2 if gated else b.shape[-1]
    batch = a.shape[:-2] or b.shape[:-2]
    return empty(a, (*batch, a.shape[-2], n), out_dtype or _product_dtype(a, exact))


def _new_grouped_product(a: Array, b: Array, out_dtype: Optional[str], gated: bool, exact: bool) -> Array:
    """[tokens, n] of a [tokens, k] and b [groups, k, n]; half as wide when gated."""
    n = b.shape[-1] // 2 if gated else b.shape[-1]
    return empty(a, (a.shape[0], n), out_dtype or _product_dtype(a, exact))


def _new_linear(x: Array, weight: Union[Array, _C.PackedWeight], out_dtype: Optional[str]) -> Array:
    """[..., n] of x [..., k] and weight [n, k]."""
    return empty(x, (*x.shape[:-1], weight.shape[0]), out_dtype)


def _new_attention(q: Array, v: Array) -> Array:
    """[..., num_heads, head_dim_v]."""
    return empty(q, (*q.shape[:-1], v.shape[-1]))


def _new_lse(q: Array) -> Array:
    """[batch, num_heads, q_len] of dense queries, [num_heads, total_q] of ragged ones."""
    return empty(q, (*q.shape[:-3], q.shape[-2], q.shape[-3]), "f32")


# ---- The ops -----------------------------------------------------------------------------------------


def embed(
    ids: Array,
    table: Array,
    *,
    scale: float = 1.0,
    table_type: Optional[str] = None,
    dtype: Optional[str] = None,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """out[t, :] = table[ids[t], :] * scale.

    ids [...] int32; table [vocab, hidden] float, or uint8 [vocab, bytes] of GGUF blocks with `table_type` such as
    "q4_1" (then `hidden` follows from the bytes). out [..., hidden] has the table's dtype unless `dtype` ("f32",
    "f16", "bf16"; needed with blocks) says otherwise. An id outside the table: ValueError on the CPU, a NaN row on
    CUDA.
    """
    _check_dtype("embed", "dtype", dtype)
    if out is None:
        out = _new_embedding(ids, table, table_type, dtype)
    (_graph if _compiling() else _C).embed(table, table_type, ids, out, scale, variant, stream)
    return out


def rmsnorm(
    x: Array,
    weight: Optional[Array] = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """x / sqrt(mean(x^2) + eps) * (weight + weight_offset), over the last axis.

    x [..., hidden] float, 1 to 5 axes; weight [hidden] of x's dtype or float32, None for ones; weight_offset is 1 for
    Gemma checkpoints. out may be x. Zhang and Sennrich 2019.
    """
    if out is None:
        out = empty_like(x)
    (_graph if _compiling() else _C).rmsnorm(x, weight, None, None, out, eps, weight_offset, variant, stream)
    return out


def add_rmsnorm(
    x: Array,
    residual: Array,
    weight: Optional[Array] = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    out: Optional[Array] = None,
    residual_out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Tuple[Array, Array]:
    """h = x + residual, rounded to the dtype, then rmsnorm of h: returns (normed, h).

    Shapes as in `rmsnorm`. out may be x; residual_out may be residual.
    """
    if out is None:
        out = empty_like(x)
    if residual_out is None:
        residual_out = empty_like(x)
    (_graph if _compiling() else _C).rmsnorm(
        x, weight, residual, residual_out, out, eps, weight_offset, variant, stream
    )
    return out, residual_out


def layernorm(
    x: Array,
    weight: Optional[Array] = None,
    bias: Optional[Array] = None,
    eps: float = 1e-5,
    *,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the biased variance.

    x [..., hidden] float; weight, bias [hidden] of x's dtype or float32, or None. out may be x.
    Ba, Kiros and Hinton 2016.
    """
    if out is None:
        out = empty_like(x)
    (_graph if _compiling() else _C).layernorm(x, weight, bias, out, eps, variant, stream)
    return out


def gemm(
    a: Array,
    b: Array,
    *,
    c: Optional[Array] = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    bias: Optional[Array] = None,
    act: str = "none",
    gated: bool = False,
    residual: Optional[Array] = None,
    scale_a: Union[Array, float, None] = None,
    scale_b: Union[Array, float, None] = None,
    scale_out: Union[Array, float, None] = None,
    tf32: bool = False,
    batch_invariant: bool = False,
    fast_accum: bool = False,
    out_dtype: Optional[str] = None,
    out: Optional[Array] = None,
    config: Optional[str] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """x = alpha * (a * scale_a) @ (b * scale_b) + beta * c + bias;  out = (act(x) + residual) / scale_out.

    a [m, k], b [k, n], c, residual and out [m, n], or all with one leading batch axis (one of a, b may have none).
    trans_a takes a [.., k, m], trans_b takes b [.., n, k]; any strides do. With `gated`, act(x[:, 2j]) * x[:, 2j + 1]
    takes act(x)'s place: n is even, out [m, n / 2], beta 0. act is "none", "relu", "silu", "gelu" or "gelu_tanh".

    a and b share a float dtype, or each is float8 (e4m3fn or e5m2), or both are int8. `out_dtype` is "f32", "f16",
    "bf16", "f8_e4m3", "f8_e5m2", "i8", or "i32" for int8 with alpha 1, beta 0 or 1 and nothing else of the formula,
    which is exact. It is a's own for floats, "i32" for int8 where that is possible, else "f32".
    c and residual have out's dtype, or a float one where out is float8 or int8, and may be out; bias [n] is float.

    Scales are numbers or float32 arrays: scale_a [1] or [m, 1], scale_b [1] or [1, n]; for float8 also blocks of 128,
    scale_a [m, ceil(k / 128)] and scale_b [ceil(k / 128), ceil(n / 128)]; scale_out [1], [m, 1] or [1, n] for out
    float8 or int8, which saturates. A batch axis may be in front.

    tf32 lets float32 operands be rounded to tf32, fast_accum leaves float8 sums to the tensor cores, batch_invariant
    makes a row's bits independent of the other rows and of m. `config` pins how a tiled variant cuts the product.
    """
    _check_dtype("gemm", "out_dtype", out_dtype, _PRODUCT_DTYPES)
    if trans_a:
        a = a.swapaxes(-1, -2)
    if trans_b:
        b = b.swapaxes(-1, -2)
    batch = a.shape[:-2] or b.shape[:-2]
    if len(a.shape) != len(b.shape):  # one of them serves the whole batch
        a, b = (broadcast(x, (*batch, *x.shape[-2:])) for x in (a, b))
    if out is None:
        extras = (bias, residual, scale_a, scale_b, scale_out)
        exact = act == "none" and not gated and all(x is None for x in extras)
        out = _new_product(a, b, out_dtype, gated, exact)
    (_graph if _compiling() else _C).gemm(
        a,
        b,
        c,
        bias,
        residual,
        _scale_array(a, scale_a),
        _scale_array(a, scale_b),
        _scale_array(a, scale_out),
        out,
        alpha,
        beta,
        _choice("gemm", "act", act, _GEMM_ACTS),
        gated,
        _gemm_flags(tf32, batch_invariant, fast_accum),
        config,
        variant,
        stream,
    )
    return out


def gemm_grouped(
    a: Array,
    b: Array,
    offsets: Array,
    *,
    alpha: float = 1.0,
    trans_b: bool = False,
    bias: Optional[Array] = None,
    act: str = "none",
    gated: bool = False,
    scale_a: Union[Array, float, None] = None,
    scale_b: Union[Array, float, None] = None,
    tf32: bool = False,
    batch_invariant: bool = False,
    fast_accum: bool = False,
    out_dtype: Optional[str] = None,
    out: Optional[Array] = None,
    config: Optional[str] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """out[t] = act(alpha * (a[t] * scale_a[t]) @ (b[g] * scale_b[g]) + bias[g]) for offsets[g] <= t < offsets[g + 1].

    The experts of a mixture, once tokens are sorted by expert. a [tokens, k], b [groups, k, n] (trans_b: [groups, n,
    k]), offsets [groups + 1] int32 beside them, bias [groups, n], out [tokens, n]. Rows of no group are not written:
    in a new out they hold anything. The rest is as in `gemm`; scale_b may have an axis of groups in front.
    Offsets that decrease or lie outside [0, tokens]: ValueError on the CPU; CUDA brings them into the range.
    """
    _check_dtype("gemm_grouped", "out_dtype", out_dtype, _PRODUCT_DTYPES)
    if trans_b:
        b = b.swapaxes(-1, -2)
    if out is None:
        exact = act == "none" and not gated and all(x is None for x in (bias, scale_a, scale_b))
        out = _new_grouped_product(a, b, out_dtype, gated, exact)
    (_graph if _compiling() else _C).gemm_grouped(
        a,
        b,
        offsets,
        bias,
        _scale_array(a, scale_a),
        _scale_array(a, scale_b),
        out,
        alpha,
        _choice("gemm_grouped", "act", act, _GEMM_ACTS),
        gated,
        _gemm_flags(tf32, batch_invariant, fast_accum),
        config,
        variant,
        stream,
    )
    return out


def linear(
    x: Array,
    weight: Union[Array, _C.PackedWeight],
    bias: Optional[Array] = None,
    *,
    weight_type: Optional[str] = None,
    compute: str = "default",
    out_dtype: Optional[str] = None,
    out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """x @ weight.T + bias, made for few rows and for quantised weights.

    x [..., k] float; weight [n, k] float; or uint8 [n, bytes] of GGUF blocks with `weight_type` such as "q4_1"; or on
    the CPU a PackedWeight from `linear_pack`, the fast form there. bias [n] float32 or out's dtype. out [..., n] has
    x's dtype unless `out_dtype` says otherwise. compute "f32" keeps activations in float32 where packed blocks would
    round them to 15 bits.
    """
    _check_dtype("linear", "out_dtype", out_dtype)
    if out is None:
        out = _new_linear(x, weight, out_dtype)
    (_graph if _compiling() else _C).linear(
        x, weight, weight_type, bias, out, _choice("linear", "compute", compute, _COMPUTE), variant, stream
    )
    return out


def linear_pack(weights: Union[Array, Sequence[Array]], *, weight_type: Optional[str] = None) -> _C.PackedWeight:
    """Weights [n_i, k], stacked by rows, in the order of this machine's vector units: for `linear` on the CPU.

    The values are kept exactly and copied; `weight_type` as in `linear`.
    """
    if not isinstance(weights, (list, tuple)):
        weights = [weights]
    return _C.PackedWeight(list(weights), weight_type)


def rope(
    x: Array,
    positions: Optional[Array] = None,
    *,
    x2: Optional[Array] = None,
    cos: Optional[Array] = None,
    sin: Optional[Array] = None,
    style: str = "neox",
    rotary_dim: int = 0,
    theta: float = 10000.0,
    freq_factors: Optional[Sequence[float]] = None,
    scaling: str = "none",
    factor: float = 0.0,
    low_freq_factor: float = 0.0,
    high_freq_factor: float = 0.0,
    original_context: int = 0,
    beta_fast: float = 0.0,
    beta_slow: float = 0.0,
    attention_factor: float = 0.0,
    out: Optional[Array] = None,
    out2: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """Rotates pairs of the first rotary_dim elements of each head; the rest is copied.

    x [..., heads, head_dim] float, the axes in front are tokens; x2 [..., heads2, head_dim], such as the keys beside
    the queries, rotates in the same call, and then (out, out2) is returned. out may be x. style "neox" pairs i with
    i + rotary_dim/2, "gptj" 2i with 2i + 1. rotary_dim 0 is head_dim.

    Angles are positions[t] * theta^(-2i/rotary_dim), positions [...] int32; `scaling` is "none", "linear", "llama3"
    or "yarn" with the parameters of those methods (0: their usual defaults; `factor` must be given); freq_factors has
    rotary_dim/2 divisors of the frequencies. Or they come as
    tables: cos, sin [table_len, rotary_dim/2], row positions[t] for token t, or row t where positions is None.
    Su et al. 2021.
    """
    if out is None:
        out = empty_like(x)
    if x2 is not None and out2 is None:
        out2 = empty_like(x2)
    if freq_factors is not None and len(freq_factors) != (rotary_dim or x.shape[-1]) // 2:
        raise ArgumentError(
            f"rope: freq_factors has {len(freq_factors)} elements, must be {(rotary_dim or x.shape[-1]) // 2}"
        )
    (_graph if _compiling() else _C).rope(
        x,
        x2,
        positions,
        cos,
        sin,
        out,
        out2,
        _choice("rope", "style", style, _STYLES),
        rotary_dim,
        0.0 if cos is not None else theta,
        freq_factors,
        _choice("rope", "scaling", scaling, _SCALINGS),
        factor,
        low_freq_factor,
        high_freq_factor,
        original_context,
        beta_fast,
        beta_slow,
        attention_factor,
        variant,
        stream,
    )
    return out if x2 is None else (out, out2)


def kv_write(
    k: Array,
    v: Array,
    k_cache: Array,
    v_cache: Array,
    slots: Array,
    *,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> None:
    """Scatters new keys and values into a paged cache: page slots[t] // page_size, row slots[t] % page_size.

    k [..., num_kv_heads, head_dim], v [.., head_dim_v]; k_cache, v_cache [num_pages, page_size, num_kv_heads, ..]
    float, converted; slots [...] int64, negative ones skipped. A slot past the cache: ValueError on the CPU with
    nothing written, skipped on CUDA.
    """
    (_graph if _compiling() else _C).kv_write(k, v, k_cache, v_cache, slots, variant, stream)


def attn_prefill(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: Tuple[int, int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: float = 0.0,
    bias: Optional[Array] = None,
    alibi_slopes: Optional[Array] = None,
    sinks: Optional[Array] = None,
    cu_seqlens_q: Optional[Array] = None,
    cu_seqlens_kv: Optional[Array] = None,
    max_q_len: int = 0,
    return_lse: bool = False,
    out: Optional[Array] = None,
    lse: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """softmax(scale * q k^T) v, over new queries and keys.

    Dense: q [batch, q_len, num_heads, head_dim], k [batch, kv_len, num_kv_heads, head_dim], v [.., head_dim_v];
    lse [batch, num_heads, q_len]. Ragged: without the batch axis, q [total_q, ..], k and v [total_kv, ..], with
    cu_seqlens_q and cu_seqlens_kv [batch + 1] int32 and max_q_len; lse [num_heads, total_q].

    causal is aligned bottom-right; window (left, right) counts keys beside the current one, -1 unlimited; scale None is
    head_dim^-0.5; softcap 0 is off; bias [batch, num_heads, q_len, kv_len] is added to the scores (dense only, strides
    of 0 broadcast, -inf hides); alibi_slopes and sinks [num_heads] float32. With return_lse (or lse given) returns
    (out, lse), lse natural, float32. A row that sees nothing is 0 with lse -inf.
    Vaswani et al. 2017; Dao et al. 2022.
    """
    if out is None:
        out = _new_attention(q, v)
    if lse is None and return_lse:
        lse = _new_lse(q)
    (_graph if _compiling() else _C).attn_prefill(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_kv,
        bias,
        alibi_slopes,
        sinks,
        out,
        lse,
        max_q_len,
        causal,
        window[0],
        window[1],
        _scale(scale),
        softcap,
        variant,
        stream,
    )
    return out if lse is None else (out, lse)


def attn_decode(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    kv_lens: Array,
    *,
    page_table: Optional[Array] = None,
    cu_seqlens_q: Optional[Array] = None,
    max_q_len: int = 0,
    causal: bool = True,
    window: Tuple[int, int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    sinks: Optional[Array] = None,
    num_splits: int = 0,
    return_lse: bool = False,
    out: Optional[Array] = None,
    lse: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """Attention of new queries, whose keys are already in the cache, over a KV cache.

    q [batch, q_len, num_heads, head_dim], or ragged [total_q, num_heads, head_dim] with cu_seqlens_q [batch + 1] int32
    and max_q_len. k_cache, v_cache [batch, max_kv_len, num_kv_heads, ..]; or paged [num_pages, page_size,
    num_kv_heads, ..] with page_table [batch, max_pages] int32. kv_lens [batch] int32 counts each sequence's keys, the
    new ones included. Unused slots may hold anything. num_splits cuts the keys into parts that run side by side.
    Masks, scale and lse as in `attn_prefill`.
    """
    if out is None:
        out = _new_attention(q, v_cache)
    if lse is None and return_lse:
        lse = _new_lse(q)
    (_graph if _compiling() else _C).attn_decode(
        q,
        k_cache,
        v_cache,
        kv_lens,
        page_table,
        cu_seqlens_q,
        alibi_slopes,
        sinks,
        out,
        lse,
        max_q_len,
        num_splits,
        causal,
        window[0],
        window[1],
        _scale(scale),
        softcap,
        variant,
        stream,
    )
    return out if lse is None else (out, lse)


def _scale(scale: Optional[float]) -> float:
    """The C struct's 0 stands for the default. A scale of zero itself becomes one that no score survives."""
    return 0.0 if scale is None else scale or 1e-30


def attn_merge(
    a: Array,
    lse_a: Array,
    b: Array,
    lse_b: Array,
    *,
    out: Optional[Array] = None,
    lse: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Tuple[Array, Array]:
    """Merges attention over two disjoint sets of keys: returns (out, lse).

    a, b [..., num_heads, head_dim] float; lse_a, lse_b [..., num_heads] float32, any strides. A side with lse
    -inf is empty. out may be a or b, lse may be lse_a or lse_b.
    """
    if out is None:
        out = empty_like(a)
    if lse is None:
        lse = empty(a, lse_a.shape, "f32")
    (_graph if _compiling() else _C).attn_merge(a, lse_a, b, lse_b, out, lse, variant, stream)
    return out, lse


def gated_act(
    gate: Array,
    up: Optional[Array] = None,
    *,
    act: str = "silu",
    out: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Array:
    """act(gate) * up, or act(gate) alone. act is "silu", "gelu" (erf) or "gelu_tanh".

    gate, up [..., n] of one float dtype (the halves of a fused projection are two views of it). out may be gate or up.
    Shazeer 2020.
    """
    if out is None:
        out = empty_like(gate)
    (_graph if _compiling() else _C).gated_act(gate, up, out, _choice("gated_act", "act", act, _ACTS), variant, stream)
    return out


def sample(
    logits: Array,
    *,
    temperature: Union[float, Array] = 0.0,
    top_k: Union[int, Array] = 0,
    top_p: Union[float, Array] = 1.0,
    min_p: Union[float, Array] = 0.0,
    repetition_penalty: Union[float, Array] = 1.0,
    seed: Union[int, Array] = 0,
    step: Union[int, Array] = 0,
    history: Optional[Array] = None,
    history_lens: Optional[Array] = None,
    return_probs: bool = False,
    out_ids: Optional[Array] = None,
    out_probs: Optional[Array] = None,
    variant: Optional[str] = None,
    stream: Optional[int] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """One token id a row: penalty, temperature, top-k, top-p, min-p, then a draw; temperature 0 is greedy.

    logits [batch, vocab] float. Each parameter is one value for all rows or an array [batch] (float32; top_k int32;
    seed, step int64); an array costs no fill kernel. history [batch, max_history] int32 with history_lens [batch] int32
    holds the ids that repetition_penalty bears on. A row's draw depends on its own seed and step alone. Returns ids
    [batch] int32, and with return_probs their probabilities [batch] float32 too.
    """
    batch = (logits.shape[0],)
    if out_ids is None:
        out_ids = empty(logits, batch, "i32")
    if out_probs is None and return_probs:
        out_probs = empty(logits, batch, "f32")

    def per_row(value: Any, default: float, dtype: str) -> Optional[Array]:
        if not isinstance(value, Real):  # an array, or None
            return value
        return None if value == default else full(logits, batch, value, dtype)

    (_graph if _compiling() else _C).sample(
        logits,
        per_row(temperature, 0, "f32"),
        per_row(top_k, 0, "i32"),
        per_row(top_p, 1, "f32"),
        per_row(min_p, 0, "f32"),
        per_row(repetition_penalty, 1, "f32"),
        per_row(seed, 0, "i64"),
        per_row(step, 0, "i64"),
        history,
        history_lens,
        out_ids,
        out_probs,
        variant,
        stream,
    )
    return out_ids if out_probs is None else (out_ids, out_probs)
