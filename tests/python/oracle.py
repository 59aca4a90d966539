"""How the tests judge numbers: against float64, by the error that plain torch makes in the working dtype."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import numpy as np
import torch


def as_torch(x: Any) -> torch.Tensor:
    """x on the CPU as a torch tensor, whichever framework made it."""
    if isinstance(x, torch.Tensor):
        return x.detach().cpu()
    x = np.asarray(x)
    if x.dtype.name == "bfloat16":  # torch reads NumPy arrays of NumPy's own dtypes only
        return torch.from_numpy(x.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def check(got: Any, exact: Any, working: Any) -> None:
    """Asserts that `got` is at most twice as far from `exact` as `working` is, plus two ulps of the largest value.

    exact is the formula in float64, working the same formula by plain torch in the dtype under test: got must have its
    dtype and shape. Infinities and NaN must stand where they stand in exact. Integers must be equal.
    """
    got, exact, working = as_torch(got), as_torch(exact), as_torch(working)
    assert got.shape == exact.shape == working.shape, f"shapes {got.shape}, {exact.shape}, {working.shape}"
    assert got.dtype == working.dtype, f"dtypes {got.dtype}, {working.dtype}"
    if not got.dtype.is_floating_point:
        assert torch.equal(got.long(), exact.long())
        return
    assert exact.dtype == torch.float64, f"exact has dtype {exact.dtype}"
    finite = exact.isfinite()
    odd = got.double()[~finite]
    assert torch.equal(odd.nan_to_num(nan=0.5), exact[~finite].nan_to_num(nan=0.5)), "infinities or NaN differ"
    values = exact[finite]
    if not values.numel():
        return
    error = (got.double()[finite] - values).abs()
    plain = (working.double()[finite] - values).abs()
    assert plain.isfinite().all(), "plain torch overflows: this case judges nothing"
    allowed = 2 * plain.max() + 2 * torch.finfo(got.dtype).eps * values.abs().max()
    worst = error.max()  # NaN, where there is one
    assert worst <= allowed, f"error {worst:.3e}, allowed {allowed:.3e}"


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: Sequence[int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: float = 0.0,
    bias: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of textbook attention, in the dtype of q [batch, heads, q_len, head_dim], k and v with kv_heads.

    causal and window are aligned bottom-right, as in llm_speed.ops; bias broadcasts to the scores.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    q_len, kv_len = scores.shape[-2:]
    ahead = torch.arange(kv_len) - torch.arange(kv_len - q_len, kv_len)[:, None]
    hidden = torch.zeros(q_len, kv_len, dtype=torch.bool)
    if causal:
        hidden |= ahead > 0
    if window[0] >= 0:
        hidden |= ahead < -window[0]
    if window[1] >= 0:
        hidden |= ahead > window[1]
    scores = scores.masked_fill(hidden, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)
    return weights @ v, torch.logsumexp(scores, -1)
