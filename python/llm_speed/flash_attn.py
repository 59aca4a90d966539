"""The functions of the flash-attn 2 package (Dao-AILab/flash-attention), with its names, arguments and layouts.

Queries are [batch, q_len, heads, head_dim], or ragged [total_q, heads, head_dim] with cu_seqlens [batch + 1] int32
(varlen). What is wider here than there: float32 works, any page size works, and v may have a head_dim of its own.
What differs:

- Inference only: dropout_p must be 0 (else NotImplementedError), and inputs that require a gradient are refused.
- A row that sees no key is 0 as there, but its log-sum-exp is -inf (there +inf), so that partial results merge.
- With return_attn_probs the result is (out, softmax_lse, None): probabilities are never formed.
- alibi_slopes other than [heads] over keys up to the query's own are for the dense functions alone.
- `deterministic` changes nothing: same inputs give the same bits anyway.

Causal masks are aligned bottom-right, window_size (left, right) counts keys beside the query's own position
i + kv_len - q_len, softmax_lse is natural, float32, [batch, heads, q_len] or [heads, total_q].
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from . import ops
from .arrays import full
from .errors import ArgumentError, DtypeError, UnsupportedError
from .ops import Array

# out, or (out, softmax_lse, None) with return_attn_probs
Attended = Union[Array, Tuple[Array, Array, None]]


def _refuse_dropout(function: str, dropout_p: float) -> None:
    if dropout_p != 0:
        raise UnsupportedError(f"{function}: dropout_p is {dropout_p}, must be 0: these ops are for inference")


def _sees_no_later_key(max_q_len: int, causal: bool, window_size: Tuple[int, int]) -> bool:
    return causal or window_size[1] == 0 or max_q_len == 1


def _refuse_two_sided_alibi(function: str, slopes: Optional[Array], one_sided: bool) -> None:
    if slopes is not None and not (slopes.ndim == 1 and one_sided):
        raise UnsupportedError(
            f"{function}: alibi_slopes must be [heads], and causal or window_size (.., 0) be given: "
            "only flash_attn_func takes others"
        )


def _alibi_bias(q: Array, k: Array, slopes: Array) -> Array:
    """-slope * |i + kv_len - q_len - j| as [1 or batch, heads, q_len, kv_len], float32."""
    import torch

    if not isinstance(slopes, torch.Tensor) or slopes.dtype != torch.float32:
        raise DtypeError("flash_attn_func: alibi_slopes must be a torch tensor of float32")
    q_len, kv_len = q.shape[1], k.shape[1]
    own = torch.arange(kv_len - q_len, kv_len, device=q.device)
    distance = (own[:, None] - torch.arange(kv_len, device=q.device)).abs()
    bias = -slopes[..., None, None] * distance
    return bias if slopes.ndim == 2 else bias[None]


def flash_attn_func(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """softmax(softmax_scale * q k^T) v.

    q [batch, q_len, heads, head_dim], k [batch, kv_len, kv_heads, head_dim], v [.., head_dim_v] of one float dtype;
    torch, NumPy, CuPy or JAX. alibi_slopes [heads] or [batch, heads] float32 adds -slope * |i + kv_len - q_len - j| to
    the score of query i and key j; where a query sees later keys too, that costs a [batch, heads, q_len, kv_len] array.
    """
    _refuse_dropout("flash_attn_func", dropout_p)
    bias = None
    if alibi_slopes is not None:
        one_sided = _sees_no_later_key(q.shape[1], causal, window_size)
        if not (alibi_slopes.ndim == 1 and one_sided):
            bias, alibi_slopes = _alibi_bias(q, k, alibi_slopes).expand(q.shape[0], -1, -1, -1), None
    result = ops.attn_prefill(
        q,
        k,
        v,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        softcap=softcap,
        bias=bias,
        alibi_slopes=alibi_slopes,
        return_lse=return_attn_probs,
    )
    return (*result, None) if return_attn_probs else result


def flash_attn_kvpacked_func(
    q: Array,
    kv: Array,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_func` with kv [batch, kv_len, 2, kv_heads, head_dim]: the two are views of it."""
    return flash_attn_func(
        q,
        kv[:, :, 0],
        kv[:, :, 1],
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_func` with qkv [batch, seq_len, 3, heads, head_dim]: the three are views of it."""
    return flash_attn_func(
        qkv[:, :, 0],
        qkv[:, :, 1],
        qkv[:, :, 2],
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_varlen_func(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Optional[Array] = None,
) -> Attended:
    """Attention within each sequence of a ragged batch.

    q [total_q, heads, head_dim], k [total_k, kv_heads, head_dim], v [.., head_dim_v]; cu_seqlens_q, cu_seqlens_k
    [batch + 1] int32; max_seqlen_q is at least the longest query (max_seqlen_k is not needed). With block_table
    [batch, max_pages] int32, k and v are pages [num_pages, page_size, kv_heads, ..] and cu_seqlens_k gives the lengths.
    """
    function = "flash_attn_varlen_func"
    _refuse_dropout(function, dropout_p)
    _refuse_two_sided_alibi(function, alibi_slopes, _sees_no_later_key(max_seqlen_q, causal, window_size))
    shared: dict[str, Any] = dict(
        cu_seqlens_q=cu_seqlens_q,
        max_q_len=max_seqlen_q,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        return_lse=return_attn_probs,
    )
    if block_table is None:
        result = ops.attn_prefill(q, k, v, cu_seqlens_kv=cu_seqlens_k, **shared)
    else:
        result = ops.attn_decode(q, k, v, cu_seqlens_k[1:] - cu_seqlens_k[:-1], page_table=block_table, **shared)
    return (*result, None) if return_attn_probs else result


def flash_attn_varlen_kvpacked_func(
    q: Array,
    kv: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_varlen_func` with kv [total_k, 2, kv_heads, head_dim]: the two are views of it."""
    return flash_attn_varlen_func(
        q,
        kv[:, 0],
        kv[:, 1],
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: Array,
    cu_seqlens: Array,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Array] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_varlen_func` with qkv [total, 3, heads, head_dim]: the three are views of it."""
    return flash_attn_varlen_func(
        qkv[:, 0],
        qkv[:, 1],
        qkv[:, 2],
        cu_seqlens,
        cu_seqlens,
        max_seqlen,
        max_seqlen,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_with_kvcache(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    k: Optional[Array] = None,
    v: Optional[Array] = None,
    rotary_cos: Optional[Array] = None,
    rotary_sin: Optional[Array] = None,
    cache_seqlens: Optional[Union[int, Array]] = None,
    cache_batch_idx: Optional[Array] = None,
    cache_leftpad: Optional[Array] = None,
    block_table: Optional[Array] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[Array] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Union[Array, Tuple[Array, Array]]:
    """Attention over a KV cache, after the new k and v, if given, have been put into it in place.

    q [batch, q_len, heads, head_dim]; k_cache [batch_cache, max_len, kv_heads, head_dim], v_cache [.., head_dim_v].
    Sequence b lies in row b of the cache (which may have more), or in row cache_batch_idx[b] (int32); with block_table
    [batch, max_pages] int32 the caches are pages [num_pages, page_size, kv_heads, ..]. cache_seqlens, one int or [batch]
    int32, counts the keys that are there before the call (None: the cache is full).

    k [batch, new_len, kv_heads, head_dim], v [.., head_dim_v] go to the positions cache_seqlens + i. One past the room
    of its sequence: ValueError on the CPU before anything is written; on CUDA it is not written and the rows of that
    sequence are NaN. rotary_cos, rotary_sin [table_len, rotary_dim/2], float32 or q's dtype, rotate k at its positions,
    and q at cache_seqlens + i with causal or a window, else all of it at cache_seqlens; pairs are (2i, 2i + 1) if
    rotary_interleaved, else (i, i + rotary_dim/2). Appending is for torch tensors.

    Nothing synchronises or allocates outside torch: the call can be compiled, and captured in a CUDA graph where
    cache_seqlens is a tensor. cache_leftpad is not supported. Returns out, or (out, softmax_lse) with
    return_softmax_lse.
    """
    function = "flash_attn_with_kvcache"
    local = tuple(window_size) != (-1, -1)
    if cache_leftpad is not None:
        raise UnsupportedError(f"{function}: cache_leftpad is not supported: sequences start at row 0 of their cache")
    _refuse_two_sided_alibi(function, alibi_slopes, _sees_no_later_key(q.shape[1], causal, window_size))
    if block_table is not None and cache_batch_idx is not None:
        raise ArgumentError(f"{function}: cache_batch_idx is for contiguous caches: block_table names the pages itself")
    if (k is None) != (v is None):
        raise ArgumentError(f"{function}: k and v must be given together")
    if k is not None and cache_seqlens is None:
        raise ArgumentError(f"{function}: with k and v cache_seqlens must be given")
    if k is None and rotary_cos is not None:
        raise ArgumentError(f"{function}: rotary_cos and rotary_sin need k and v")

    # A contiguous cache is one of pages that each hold a sequence.
    page_table = block_table if cache_batch_idx is None else cache_batch_idx[:, None]
    if page_table is None:
        k_cache, v_cache = k_cache[: q.shape[0]], v_cache[: q.shape[0]]
    if cache_seqlens is None:
        cache_seqlens = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    if isinstance(cache_seqlens, int):
        cache_seqlens = full(q, q.shape[:1], cache_seqlens, "i32")
    kv_lens = cache_seqlens
    if k is not None:
        positions = _positions(cache_seqlens, k.shape[1])
        if rotary_cos is not None:
            style = "gptj" if rotary_interleaved else "neox"
            q, k = _rotate(q, k, rotary_cos, rotary_sin, style, cache_seqlens, positions, causal or local)
        ops.kv_write(k, v, k_cache, v_cache, _slots(positions, page_table, k_cache.shape))
        kv_lens = cache_seqlens + k.shape[1]
    return ops.attn_decode(
        q,
        k_cache,
        v_cache,
        kv_lens,
        page_table=page_table,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        num_splits=num_splits,
        return_lse=return_softmax_lse,
    )


def _positions(cache_seqlens: Array, count: int) -> Array:
    """[batch, count]: the positions from cache_seqlens on."""
    import torch

    if not isinstance(cache_seqlens, torch.Tensor):
        raise DtypeError("flash_attn_with_kvcache: appending k and v takes torch tensors")
    return cache_seqlens[:, None] + torch.arange(count, dtype=cache_seqlens.dtype, device=cache_seqlens.device)


def _slots(positions: Array, page_table: Optional[Array], cache_shape: Tuple[int, ...]) -> Array:
    """Where kv_write puts each position; those outside their sequence's pages go past the cache, which it refuses."""
    import torch

    num_pages, page_size = cache_shape[:2]
    if page_table is None:
        page_table = torch.arange(positions.shape[0], device=positions.device)[:, None]
    wanted = positions // page_size
    column = wanted.clamp(0, page_table.shape[1] - 1)
    slots = page_table.gather(1, column.long()).long() * page_size + positions % page_size
    return slots.masked_fill(wanted != column, num_pages * page_size)


def _rotate(
    q: Array,
    k: Array,
    cos: Array,
    sin: Optional[Array],
    style: str,
    cache_seqlens: Array,
    positions: Array,
    in_order: bool,
) -> Tuple[Array, Array]:
    """q and k rotated: k at `positions`, q at the same ones if in_order, else all at cache_seqlens."""

    def rope(x: Array, at: Array, x2: Optional[Array] = None) -> Any:
        return ops.rope(x, at, x2=x2, cos=cos, sin=sin, style=style, rotary_dim=2 * cos.shape[-1])

    q_len = q.shape[1]
    if q_len == k.shape[1] and (in_order or q_len == 1):
        return rope(q, positions, k)
    q_positions = _positions(cache_seqlens, q_len) if in_order else cache_seqlens[:, None].expand(-1, q_len)
    return rope(q, q_positions), rope(k, positions)
