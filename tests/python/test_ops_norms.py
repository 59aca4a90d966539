"""rmsnorm, add_rmsnorm, layernorm, gated_act against plain torch in float64."""

from __future__ import annotations

import math
from typing import Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
import llm_speed
from oracle import check

# Hidden sizes around the vector widths and block sizes that implementations have; 0 rows is a valid call.
shapes = st.tuples(
    st.lists(st.integers(0, 3), min_size=0, max_size=3),
    st.sampled_from([1, 3, 8, 31, 64, 100, 257, 512, 1024]),
).map(lambda t: (*t[0], t[1]))
epsilons = st.sampled_from([0.0, 1e-6, 1e-5, 0.1])


def weight_of(draw, x: torch.Tensor) -> Optional[torch.Tensor]:
    kind = draw(st.sampled_from(["none", "same", "f32", "strided"]), label="weight")
    if kind == "none":
        return None
    dtype = torch.float32 if kind == "f32" else x.dtype
    values = cases.normal(x.shape[-1:], dtype, x.device.type)
    return cases.laid_out(values, "inner_strided") if kind == "strided" else values


def rms(x: torch.Tensor, weight: Optional[torch.Tensor], eps: float, offset: float, dtype: torch.dtype) -> torch.Tensor:
    x = x.to(dtype)
    normed = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return normed if weight is None else normed * (weight.to(dtype) + offset)


@pytest.mark.parametrize("form", ["fresh", "out", "in_place"])
@cases.settings
@given(data=st.data())
def test_rmsnorm(device, form, data):
    draw = data.draw
    dtype, layout = draw(cases.float_dtypes), draw(cases.layouts)
    shape, eps, offset = draw(shapes), draw(epsilons), draw(st.sampled_from([0.0, 1.0, -0.5]))
    if form == "in_place":
        layout = draw(st.sampled_from(["contiguous", "row_strided", "offset"]))
    x = cases.laid_out(cases.normal(shape, dtype, device, draw(st.sampled_from([0.01, 1.0, 20.0]))), layout)
    weight = weight_of(draw, x)
    exact, working = (rms(x, weight, eps, offset if weight is not None else 0.0, d) for d in (torch.float64, dtype))
    variant = draw(st.sampled_from(cases.variants("rmsnorm", device)))
    out_layout = draw(st.sampled_from(["contiguous", "row_strided", "offset"])) if form == "out" else None
    out = cases.Out(shape, dtype, device, out_layout)
    target = x if form == "in_place" else out.tensor
    if weight is None:
        offset = 0.0
    got = cases.run_variant(llm_speed.rmsnorm, x, weight, eps, weight_offset=offset, out=target, variant=variant)
    assert got.dtype == dtype and got.shape == x.shape
    assert form != "in_place" or got is x
    out.check(got)
    check(got, exact, working)


@pytest.mark.parametrize("form", ["fresh", "out", "in_place"])
@cases.settings
@given(data=st.data())
def test_add_rmsnorm(device, form, data):
    draw = data.draw
    dtype, shape, eps = draw(cases.float_dtypes), draw(shapes), draw(epsilons)
    usable = st.sampled_from(["contiguous", "row_strided", "offset"]) if form == "in_place" else cases.layouts
    x = cases.laid_out(cases.normal(shape, dtype, device), draw(usable))
    residual = cases.laid_out(cases.normal(shape, dtype, device, 4.0), draw(usable))
    weight = weight_of(draw, x)
    h = x + residual
    exact, working = (rms(h, weight, eps, 0.0, d) for d in (torch.float64, dtype))
    variant = draw(st.sampled_from(cases.variants("rmsnorm", device)))
    if form == "in_place":
        outs = (x, residual)
    elif form == "out":
        outs = tuple(cases.Out(shape, dtype, device, draw(cases.out_layouts)).tensor for _ in range(2))
    else:
        outs = (None, None)
    got, got_h = cases.run_variant(
        llm_speed.add_rmsnorm, x, residual, weight, eps, out=outs[0], residual_out=outs[1], variant=variant
    )
    for given_out, returned in zip(outs, (got, got_h)):
        assert given_out is None or returned is given_out
    torch.testing.assert_close(got_h, h, rtol=0, atol=0)  # one addition, rounded once: exact
    check(got, exact, working)


@pytest.mark.parametrize("form", ["fresh", "out", "in_place"])
@cases.settings
@given(data=st.data())
def test_layernorm(device, form, data):
    draw = data.draw
    dtype, shape, eps = draw(cases.float_dtypes), draw(shapes), draw(st.sampled_from([1e-6, 1e-5, 0.1]))
    usable = st.sampled_from(["contiguous", "row_strided", "offset"]) if form == "in_place" else cases.layouts
    mean = draw(st.sampled_from([0.0, 3.0]))
    x = cases.laid_out(cases.normal(shape, dtype, device) + mean, draw(usable))
    weight, bias = weight_of(draw, x), weight_of(draw, x)

    def formula(dtype: torch.dtype) -> torch.Tensor:
        wide = x.to(dtype)
        centred = wide - wide.mean(-1, keepdim=True)
        y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
        y = y if weight is None else y * weight.to(dtype)
        return y if bias is None else y + bias.to(dtype)

    exact, working = formula(torch.float64), formula(dtype)
    out = cases.Out(shape, dtype, device, draw(cases.out_layouts) if form == "out" else None)
    target = x if form == "in_place" else out.tensor
    variant = draw(st.sampled_from(cases.variants("layernorm", device)))
    got = cases.run_variant(llm_speed.layernorm, x, weight, bias, eps, out=target, variant=variant)
    assert target is None or got is target
    out.check(got)
    check(got, exact, working)


ACTS = {
    "silu": lambda x: x * torch.sigmoid(x),
    # Far below zero 1 + erf and 1 + tanh lose every digit, in float64 too: these forms keep them.
    "gelu": lambda x: 0.5 * x * torch.special.erfc(x / -math.sqrt(2)),
    "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("form", ["fresh", "out", "over_gate", "over_up"])
@cases.settings
@given(data=st.data())
def test_gated_act(device, act, form, data):
    draw = data.draw
    dtype, shape = draw(cases.float_dtypes), draw(shapes)
    if draw(st.booleans(), label="fused"):  # the two halves of one projection
        fused = cases.normal((*shape[:-1], 2 * shape[-1]), dtype, device, 3.0)
        gate, up = fused.chunk(2, dim=-1)
    else:
        usable = cases.layouts if form in ("fresh", "out") else st.sampled_from(["contiguous", "offset"])
        gate = cases.laid_out(cases.normal(shape, dtype, device, 3.0), draw(usable))
        up = cases.laid_out(cases.normal(shape, dtype, device), draw(usable))
    if form in ("fresh", "out") and draw(st.booleans(), label="no up"):
        up = None

    def formula(dtype: torch.dtype) -> torch.Tensor:
        y = ACTS[act](gate.to(dtype))
        return y if up is None else y * up.to(dtype)

    exact, working = formula(torch.float64), formula(dtype)
    out = cases.Out(shape, dtype, device, draw(cases.out_layouts) if form == "out" else None)
    target = {"fresh": None, "out": out.tensor, "over_gate": gate, "over_up": up}[form]
    variant = draw(st.sampled_from(cases.variants("gated_act", device)))
    got = cases.run_variant(llm_speed.gated_act, gate, up, act=act, out=target, variant=variant)
    assert target is None or got is target
    out.check(got)
    check(got, exact, working)


def test_act_limits(device):
    """act(-inf) is 0, not NaN; act(+inf) is inf; NaN stays."""
    gate = torch.tensor([[-math.inf, math.inf, math.nan, -1e4, 1e4]], device=device)
    for act in ACTS:
        got = llm_speed.gated_act(gate, act=act)[0].tolist()
        assert got[0] == 0 and got[1] == math.inf and math.isnan(got[2]) and got[3:] == [0, 1e4]


def test_rmsnorm_statistics_are_float32(device):
    """Squares that overflow half precision, and a row whose mean square is far below its largest value."""
    x = torch.full((1, 4096), 300.0, dtype=torch.float16, device=device)
    assert (llm_speed.rmsnorm(x) == 1).all()
    x = torch.zeros(1, 4096, dtype=torch.bfloat16, device=device)
    x[0, 7] = 1.0
    assert llm_speed.rmsnorm(x, eps=0.0)[0, 7] == 64.0


def test_outputs_of_odd_strides_are_refused_not_copied(device):
    for op in (llm_speed.rmsnorm, llm_speed.layernorm, llm_speed.gated_act):
        out = cases.Out((4, 8), torch.float32, device, "inner_strided").tensor
        with pytest.raises(ValueError, match="out"):
            op(torch.ones(4, 8, device=device), out=out)
        assert out.isnan().all()
