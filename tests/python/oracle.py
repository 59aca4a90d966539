"""How the tests judge numbers: against float64, by the error that plain torch makes in the working dtype."""

from __future__ import annotations

from typing import Any

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
