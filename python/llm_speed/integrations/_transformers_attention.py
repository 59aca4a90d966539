"""Attention and its mask, in the calling conventions of transformers.

transformers first asks for a mask, once a forward pass and kind of layer, then hands it to each layer's attention. What
travels between the two here is one of

- None: every query sees the keys up to its own, aligned bottom-right; all keys where the module is not causal.
  Nothing is stored, whatever the length.
- key counts, int32 [batch, window, 1, keys], one value a sequence, broadcast: causal too, but only the first `keys`
  slots of the cache are looked at and of those the counted ones, and each query sees the last `window` of them up to
  its own (1: all). For one query, a sliding window, a static cache. Several queries come with all counts equal to
  `keys`.
- a bias, float [batch, 1, q_len, kv_len] of 0 and -inf, added to the scores: padding and every pattern that is not
  plain causal. transformers' own masks of four axes (bool, or float) are read as such too.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask
from transformers.utils.import_utils import is_tracing

from .. import ops
from ..errors import UnsupportedError

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Arguments that change the result and have no counterpart here. All others that attention() does not name describe
# what the tensors show already.
_REFUSED = {
    "position_bias": "a learned position bias",
    "cu_seq_lens_q": "packed sequences given by cu_seq_lens_q",
    "block_table": "a paged cache",
    "output_attentions": "output_attentions, since the weights are never stored",
}


def takes(*tensors: torch.Tensor) -> bool:
    """Can the ops stand in for torch here? They know three dtypes, one a call, two kinds of device, no gradients."""
    first = tensors[0]
    return (
        first.dtype in _DTYPES
        and first.device.type in ("cpu", "cuda")
        and all(t.dtype == first.dtype for t in tensors)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
    )


# ---- The mask ----------------------------------------------------------------------------------------


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Union[int, torch.Tensor] = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Optional[torch.Tensor] = None,
    local_size: Optional[int] = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    dtype: torch.dtype = torch.float32,
    config: Any = None,
    device: Union[torch.device, str] = "cpu",
    **kwargs: Any,
) -> Optional[torch.Tensor]:
    """A mask function of transformers' AttentionMaskInterface, with the arguments of its sdpa_mask.

    Queries are positions q_offset.. and keys positions kv_offset..; attention_mask bool [batch, positions] is False at
    padding. Returns one of the three forms above.
    """
    # transformers allows the skip for base patterns alone: causal, sliding window, chunks.
    window = local_size if (local_size or 0) > 1 and local_size == getattr(config, "sliding_window", None) else None
    if mask_function is causal_mask_function or (allow_is_causal_skip and window is not None):
        used = _keys_in_use(q_length, q_offset, kv_offset, attention_mask)
        if used is not None and q_length > 1 and used == kv_length and window is None:
            return None
        if isinstance(used, torch.Tensor):
            return _key_counts(used.to(device, torch.int32).repeat(batch_size), window, kv_length)
        if used is not None:
            return _key_counts(torch.full((batch_size,), used, dtype=torch.int32, device=device), window, used)
    elif allow_is_bidirectional_skip and local_size is None and _is_unpadded(attention_mask):
        return None

    visible: Any = sdpa_mask(
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,  # type: ignore[arg-type]  # its annotation forgets the static cache's
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        local_size=local_size,
        allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False,
        device=device,
        **kwargs,
    )
    return _as_bias(visible, dtype)


def _keys_in_use(
    q_length: int, q_offset: Union[int, torch.Tensor], kv_offset: int, attention_mask: Optional[torch.Tensor]
) -> Union[int, torch.Tensor, None]:
    """Keys up to the last query's own: an int, or a 0-d tensor where a static cache keeps its length in one.

    None where some of them are padding, or where it would take reading a tensor in a graph to know.
    """
    if isinstance(q_offset, torch.Tensor) and q_length > 1:
        if is_tracing(q_offset):
            return None
        q_offset = int(q_offset)  # once a prompt; a step of one token stays on the device
    used = q_offset + q_length - kv_offset
    if attention_mask is None:
        return used
    given = attention_mask[:, kv_offset:]
    if isinstance(used, torch.Tensor):
        # Positions past the end of attention_mask are hidden.
        return used.clamp(max=given.shape[1]) if _is_unpadded(given) else None
    return used if given.shape[1] >= used and _is_unpadded(given[:, :used]) else None


def _is_unpadded(attention_mask: Optional[torch.Tensor]) -> bool:
    return attention_mask is None or (not is_tracing(attention_mask) and bool(attention_mask.all()))


def _key_counts(counts: torch.Tensor, window: Optional[int], keys: int) -> torch.Tensor:
    return counts.view(-1, 1, 1, 1).expand(-1, window or 1, 1, keys)


def _is_key_counts(mask: Optional[torch.Tensor]) -> bool:
    return mask is not None and mask.dtype == torch.int32


def _window_of(key_counts: torch.Tensor) -> Optional[int]:
    return None if key_counts.shape[1] == 1 else key_counts.shape[1]


def _as_bias(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros((), dtype=dtype, device=visible.device).where(visible, float("-inf"))


# ---- Attention ---------------------------------------------------------------------------------------


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    is_causal: Optional[bool] = None,
    s_aux: Optional[torch.Tensor] = None,
    **kwargs: Any,
) -> Tuple[Any, None]:
    """An attention function of transformers' AttentionInterface.

    query [batch, num_heads, q_len, head_dim], key and value [batch, num_kv_heads, kv_len, ..], any strides. A causal
    query sees `sliding_window` keys, its own included; s_aux [num_heads] are sinks. Returns (out, None) with out
    [batch, q_len, num_heads, head_dim_v]. Where gradients or dropout are wanted, or the dtype is none of ours, torch's
    scaled_dot_product_attention runs in place of the ops. UnsupportedError for arguments that neither can honour.
    """
    for name, what in _REFUSED.items():
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise UnsupportedError(f'llm_speed attention does not do {what}: use attn_implementation="eager"')
    if attention_mask is not None and attention_mask.ndim != 4:
        raise UnsupportedError(f"llm_speed attention: attention_mask has {attention_mask.ndim} axes, must have 4")
    counts, mask = (attention_mask, None) if _is_key_counts(attention_mask) else (None, attention_mask)
    causal = counts is not None or (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    window = sliding_window if counts is None else _window_of(counts)
    if mask is None and not causal and window is not None and key.shape[2] > window:
        raise UnsupportedError("llm_speed attention: a sliding window that is not causal needs a mask")

    if dropout > 0 or not takes(query, key, value):
        if softcap is not None or s_aux is not None:
            raise UnsupportedError(
                "llm_speed attention has no gradients, and torch's has neither softcap nor sinks: use torch.no_grad(), "
                'or attn_implementation="eager"'
            )
        if mask is None and causal and not (counts is None and window is None and query.shape[2] == key.shape[2]):
            mask = _visible(query, key, counts, window)
        return sdpa_attention_forward(module, query, key, value, mask, dropout, scaling, is_causal=causal)

    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    score: Dict[str, Any] = {
        "scale": scaling,
        "softcap": softcap or 0.0,
        "sinks": None if s_aux is None else s_aux.float(),
    }
    if mask is not None:
        return ops.attn_prefill(q, k, v, bias=_bias_of(mask, q, k), **score), None
    score["causal"] = causal
    score["window"] = (-1, -1) if window is None or not causal else (window - 1, -1)  # the query's own counts as 0
    if counts is None:
        return ops.attn_prefill(q, k, v, **score), None
    k, v = k[:, : counts.shape[3]], v[:, : counts.shape[3]]
    if q.shape[1] > 1:
        return ops.attn_prefill(q, k, v, **score), None
    return ops.attn_decode(q, k, v, counts[:, 0, 0, 0], **score), None


def _bias_of(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """mask [batch or 1, heads or 1, q_len, at least kv_len], bool or float, as attn_prefill's bias."""
    bias = _as_bias(mask, q.dtype) if mask.dtype == torch.bool else mask
    if bias.dtype != torch.float32:
        bias = bias.to(q.dtype)
    return bias[..., : k.shape[1]].expand(q.shape[0], q.shape[2], q.shape[1], k.shape[1])


def _visible(
    query: torch.Tensor, key: torch.Tensor, key_counts: Optional[torch.Tensor], window: Optional[int]
) -> torch.Tensor:
    """None or key counts as a bool mask for torch, which aligns causal masks top-left and knows no windows."""
    q_len, kv_len = query.shape[2], key.shape[2]
    count = kv_len if key_counts is None else key_counts[:, :1, :, :1]
    own = torch.arange(q_len, device=key.device)[:, None] + (count - q_len)  # each query's own key
    position = torch.arange(kv_len, device=key.device)
    visible = position <= own
    if window is not None:
        visible = visible & (position > own - window)
    return visible.expand(query.shape[0], 1, q_len, kv_len)
