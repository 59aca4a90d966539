"""torch.nn.functional.scaled_dot_product_attention, over `ops.attn_prefill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from . import ops
from .errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from torch import Tensor

_FUNCTION = "scaled_dot_product_attention"


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query key^T + attn_mask) value, with PyTorch's meaning of every argument.

    query [..., H, L, E], key [..., H, S, E], value [..., H, S, Ev], torch tensors of one float dtype; the axes in
    front broadcast, and there may be none. enable_gqa lets key and value have fewer heads (axis -3), a divisor of H.
    attn_mask broadcasts to [..., H, L, S]: bool (True takes part), or float32 or query's dtype, added to the scores.
    is_causal hides key j from row i where j > i, counted from the top left, whatever L and S are. Rows that see nothing
    are 0. Returns [..., H, L, Ev], which lies in memory as [..., L, H, Ev], so that merging the heads needs no copy.

    Inputs are read in place: [B, H, L, E] views of [B, L, H, E] tensors cost nothing. dropout_p must be 0 (else
    NotImplementedError), and inputs that require a gradient are refused.
    """
    if dropout_p != 0:
        raise UnsupportedError(f"{_FUNCTION}: dropout_p is {dropout_p}, must be 0: these ops are for inference")
    if is_causal and attn_mask is not None:
        raise ArgumentError(f"{_FUNCTION}: attn_mask cannot be given with is_causal")
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise ArgumentError(f"{_FUNCTION}: {name} has {x.ndim} axes, must have at least 2")

    rows = query.shape[-2]
    if is_causal and rows < key.shape[-2]:  # later keys are seen by no row
        key, value = key[..., :rows, :], value[..., :rows, :]
    batch = _broadcast(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads, kv_heads = _heads(query, key, value, enable_gqa)
    q = _tokens_major(query, batch, heads)
    k, v = _tokens_major(key, batch, kv_heads), _tokens_major(value, batch, kv_heads)

    kv_rows = key.shape[-2]
    bias = None if attn_mask is None else _bias(attn_mask, query, (*batch, heads, rows, kv_rows))
    # ops count the window from the bottom right: there, the diagonal from the top left is rows - kv_rows to the right.
    window = (-1, rows - kv_rows if is_causal else -1)
    out: ops.Array = ops.attn_prefill(q, k, v, window=window, scale=scale, bias=bias)

    had_heads = max(query.ndim, key.ndim, value.ndim) > 2
    return out.swapaxes(1, 2).reshape(*batch, *((heads,) if had_heads else ()), rows, value.shape[-1])


def _broadcast(*shapes: Tuple[int, ...]) -> Tuple[int, ...]:
    import torch

    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError as error:
        listed = ", ".join(str(tuple(shape)) for shape in shapes)
        raise ArgumentError(f"{_FUNCTION}: the leading axes {listed} do not broadcast") from error


def _heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> Tuple[int, int]:
    """Heads of the result, and those that keys and values are read with."""
    h, h_k, h_v = ((x.shape[-3] if x.ndim > 2 else 1) for x in (query, key, value))
    if enable_gqa:
        if h_k != h_v or h_k == 0 or h % h_k:
            raise ArgumentError(f"{_FUNCTION}: {h} heads of query are no multiple of {h_k} of key and {h_v} of value")
        return h, h_k
    (heads,) = _broadcast((h,), (h_k,), (h_v,))
    return heads, (1 if h_k == h_v == 1 else heads)


def _tokens_major(x: Tensor, batch: Tuple[int, ...], heads: int) -> Tensor:
    """A view [batch, tokens, heads, dim] of x [..., heads, tokens, dim], its leading axes broadcast and made one."""
    if x.ndim != 4 or tuple(x.shape[:-2]) != (*batch, heads):
        x = x.expand(*batch, heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
    return x.swapaxes(1, 2)


def _bias(attn_mask: Tensor, query: Tensor, shape: Tuple[int, ...]) -> Tensor:
    """The mask as scores to add, [batch, heads, rows, kv_rows], still broadcast."""
    import torch

    if attn_mask.dtype == torch.bool:
        attn_mask = query.new_zeros(attn_mask.shape).masked_fill(~attn_mask, float("-inf"))
    try:
        expanded = attn_mask.expand(shape)
    except RuntimeError as error:
        raise ArgumentError(f"{_FUNCTION}: attn_mask {tuple(attn_mask.shape)} does not broadcast to {shape}") from error
    return expanded.reshape(-1, *shape[-3:])
