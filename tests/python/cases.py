"""What the op tests draw: dtypes, memory layouts, variants. Hypothesis picks, NaN marks memory that is nobody's."""

from __future__ import annotations

from typing import Any, Callable, Optional

import hypothesis
import torch
from hypothesis import strategies as st

import llm_speed

settings = hypothesis.settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
float_dtypes = st.sampled_from(list(DTYPES.values()))
dtype_names = {dtype: name for name, dtype in DTYPES.items()}

# Layouts with a unit inner stride, which every op walks in place; and those that inputs are copied from.
WALKABLE = ("contiguous", "row_strided", "offset", "expanded")
ODD = ("transposed", "inner_strided")
layouts = st.sampled_from(WALKABLE + ODD)
out_layouts = st.sampled_from([None, "contiguous", "row_strided", "offset"])


def variants(op: str, device: str) -> list[Optional[str]]:
    """None, for the library's choice, and every implementation that can run on the device."""
    rows = (row for row in llm_speed.variants() if row["op"] == op and row["device"] == device)
    return [None, *(row["variant"] for row in rows if row["unavailable"] is None)]


def run_variant(function: Callable[..., Any], *args: Any, variant: Optional[str], **options: Any) -> Any:
    """The call with this variant; where it says that these arguments are not for it, with the library's choice.

    The naive rung and those of the CPU take everything, so that a refusal of theirs is a failure.
    """
    try:
        return function(*args, variant=variant, **options)
    except llm_speed.errors.UnsupportedError:
        if variant is None or variant.startswith(("ref", "cpu_", "01_naive")):
            raise
        return function(*args, variant=None, **options)


def normal(shape: tuple[int, ...], dtype: torch.dtype, device: str, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, dtype=torch.float32) * scale).to(dtype).to(device)


def laid_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """A view of `values`' shape in memory of another form, NaN around it. "expanded" repeats the first row."""
    poison = float("nan") if values.is_floating_point() else -(2**31)
    shape = list(values.shape)
    if layout == "contiguous" or not shape:
        return values.contiguous().clone()
    if layout == "expanded":
        return values[:1].contiguous().clone().expand(shape) if shape[0] else values.clone()
    if layout == "row_strided":
        view = values.new_full((*shape[:-1], shape[-1] + 5), poison)[..., 2 : 2 + shape[-1]]
    elif layout == "offset":
        flat = values.new_full((values.numel() + 7,), poison)
        view = flat[3 : 3 + values.numel()].view(shape)
    elif layout == "transposed":
        view = values.new_full([shape[0], *reversed(shape[1:])], poison).permute(0, *range(len(shape) - 1, 0, -1))
        if len(shape) == 2:
            view = values.new_full((shape[1], shape[0] + 1), poison).t()[: shape[0]]
    elif layout == "inner_strided":
        view = values.new_full((*shape[:-1], 2 * shape[-1]), poison)[..., ::2]
    else:
        raise ValueError(layout)
    return view.copy_(values)


class Out:
    """An output of a layout (None: the op makes its own), and the check that nothing beside it was written."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: str, layout: Optional[str]) -> None:
        nans = torch.full(shape, float("nan"), dtype=dtype, device=device)
        self.tensor = None if layout is None else laid_out(nans, layout)

    def check(self, returned: torch.Tensor) -> None:
        if self.tensor is None:
            return
        assert returned is self.tensor
        storage = returned.as_strided((returned.untyped_storage().nbytes() // returned.itemsize,), (1,), 0)
        beside = torch.ones_like(storage, dtype=torch.bool)
        beside.as_strided(returned.shape, returned.stride(), returned.storage_offset()).fill_(False)
        assert storage[beside].isnan().all(), "memory beside the output was written"
