"""embed, rope, kv_write against plain torch in float64."""

from __future__ import annotations

import math
from typing import Any, Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
import llm_speed
from oracle import check

leading_axes = st.sampled_from([(0,), (1,), (5,), (2, 3)])


# ---- embed -------------------------------------------------------------------------------------------


@cases.settings
@given(data=st.data())
def test_embed(device, data):
    draw = data.draw
    vocab, hidden, tokens = draw(st.integers(1, 20)), draw(st.sampled_from([1, 5, 64, 130])), draw(leading_axes)
    table_dtype, out_name = draw(cases.float_dtypes), draw(st.sampled_from([None, "f32", "f16", "bf16"]))
    out_dtype = cases.DTYPES[out_name] if out_name else table_dtype
    table = cases.laid_out(cases.normal((vocab, hidden), table_dtype, device), draw(cases.layouts))
    ids = cases.laid_out(torch.randint(0, vocab, tokens, dtype=torch.int32), draw(cases.layouts)).to(device)
    scale = draw(st.sampled_from([1.0, math.sqrt(64), -0.3]))
    out = cases.Out((*tokens, hidden), out_dtype, device, draw(cases.out_layouts))
    variant = draw(st.sampled_from(cases.variants("embed", device)))
    got = cases.run_variant(llm_speed.embed, ids, table, scale=scale, dtype=out_name, out=out.tensor, variant=variant)
    out.check(got)
    rows = table[ids.long()]
    check(got, rows.double() * scale, (rows.float() * scale).to(out_dtype))


def test_embed_bad_id(device):
    table, out = torch.ones(4, 8, device=device), torch.full((3, 8), 7.0, device=device)
    for bad in (-1, 4, 2**31 - 1):
        ids = torch.tensor([0, bad, 1], dtype=torch.int32, device=device)
        if device == "cpu":
            with pytest.raises(ValueError, match=rf"embed: ids\[1\] is {bad}"):
                llm_speed.embed(ids, table, out=out)
            assert (out == 7).all()
        else:
            got = llm_speed.embed(ids, table)
            assert got[1].isnan().all() and (got[0] == 1).all() and (got[2] == 1).all()


# ---- rope --------------------------------------------------------------------------------------------


def frequencies(dim: int, options: dict[str, Any]) -> tuple[torch.Tensor, float]:
    """Radians a position for each pair, and the factor on cos and sin: the formulas of the four papers."""
    theta, factor, original = options["theta"], options.get("factor", 0.0), options.get("original_context", 0)
    pair = torch.arange(dim // 2, dtype=torch.float64)
    freq = theta ** (-2 * pair / dim)
    if options.get("freq_factors"):
        freq = freq / torch.tensor(options["freq_factors"], dtype=torch.float64)
    scaling = options.get("scaling", "none")
    if scaling == "linear":
        return freq / factor, 1.0
    if scaling == "llama3":  # Meta's code, by wavelengths
        low, high = options.get("low_freq_factor") or 1.0, options.get("high_freq_factor") or 4.0
        wavelength = 2 * math.pi / freq
        smooth = (original / wavelength - low) / (high - low)
        between = (1 - smooth) * freq / factor + smooth * freq
        slowed = torch.where(wavelength > original / low, freq / factor, between)
        return torch.where(wavelength < original / high, freq, slowed), 1.0
    if scaling == "yarn":
        turns = (options.get("beta_fast") or 32.0, options.get("beta_slow") or 1.0)
        bounds = [dim * math.log(original / (t * 2 * math.pi)) / (2 * math.log(theta)) for t in turns]
        first, last = max(math.floor(bounds[0]), 0), min(math.ceil(bounds[1]), dim - 1)
        ramp = ((pair - first) / max(last - first, 0.001)).clamp(0, 1)
        magnitude = options.get("attention_factor") or 0.1 * math.log(factor) + 1
        return freq / factor * ramp + freq * (1 - ramp), magnitude
    return freq, 1.0


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, style: str, dtype: torch.dtype) -> torch.Tensor:
    """x [tokens, heads, head_dim]; cos, sin [tokens, pairs]."""
    out, pairs = x.to(dtype, copy=True), cos.shape[-1]
    cos, sin = cos[:, None].to(dtype), sin[:, None].to(dtype)
    first = slice(0, pairs) if style == "neox" else slice(0, 2 * pairs, 2)
    second = slice(pairs, 2 * pairs) if style == "neox" else slice(1, 2 * pairs, 2)
    a, b = out[..., first].clone(), out[..., second].clone()
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


scalings = st.sampled_from(
    [
        {},
        {"freq_factors": True},
        {"scaling": "linear", "factor": 4.0},
        {"scaling": "llama3", "factor": 8.0, "original_context": 8192},
        {
            "scaling": "llama3",
            "factor": 32.0,
            "original_context": 512,
            "low_freq_factor": 2.0,
            "high_freq_factor": 5.0,
        },
        {"scaling": "yarn", "factor": 4.0, "original_context": 4096},
        {"scaling": "yarn", "factor": 2.0, "original_context": 128, "beta_fast": 16.0, "beta_slow": 2.0},
        {"scaling": "yarn", "factor": 8.0, "original_context": 2048, "attention_factor": 1.25},
    ]
)


def heads_of(draw: Any, tokens: tuple[int, ...], dim: int, dtype: torch.dtype, device: str, form: str) -> torch.Tensor:
    shape = (*tokens, draw(st.integers(1, 3)), dim)
    usable = st.sampled_from(["contiguous", "row_strided", "offset"]) if form == "in_place" else cases.layouts
    return cases.laid_out(cases.normal(shape, dtype, device), draw(usable))


@pytest.mark.parametrize("angles", ["computed", "tables", "tables_by_position"])
@pytest.mark.parametrize("form", ["fresh", "out", "in_place"])
@cases.settings
@given(data=st.data())
def test_rope(device, angles, form, data):
    draw = data.draw
    dtype, tokens = draw(cases.float_dtypes), draw(leading_axes)
    count = math.prod(tokens)
    head_dim = draw(st.sampled_from([2, 6, 64, 80, 128]))
    rotary_dim = draw(st.sampled_from([0, 2, head_dim // 4 * 2 or 2]))
    pairs = (rotary_dim or head_dim) // 2
    style, theta = draw(st.sampled_from(["neox", "gptj"])), draw(st.sampled_from([10000.0, 500000.0]))
    options = {"style": style, "rotary_dim": rotary_dim}
    x = heads_of(draw, tokens, head_dim, dtype, device, form)
    x2 = heads_of(draw, tokens, head_dim, dtype, device, form) if draw(st.booleans(), label="x2") else None
    table_len = count if angles == "tables" else draw(st.integers(max(count, 1), 30))
    high = 10**6 if angles == "computed" else table_len
    low = -high if angles == "computed" else 0
    positions = None if angles == "tables" else torch.randint(low, high, tokens, dtype=torch.int32)
    if angles == "computed":
        options |= {"theta": theta, **draw(scalings)}
        if options.get("freq_factors"):
            options["freq_factors"] = [1.0 + 0.5 * (i % 4) for i in range(pairs)]
        freq, magnitude = frequencies(2 * pairs, options)
        angle = positions.reshape(-1, 1).double() * freq
        cos, sin = magnitude * angle.cos(), magnitude * angle.sin()
    else:
        table_dtype = draw(st.sampled_from([torch.float32, dtype]))
        tables = [
            cases.laid_out(cases.normal((table_len, pairs), table_dtype, device), draw(cases.layouts)) for _ in "cs"
        ]
        options |= dict(zip(("cos", "sin"), tables))
        rows = slice(None) if positions is None else positions.reshape(-1).long()
        cos, sin = (t.cpu()[rows] for t in tables)
    expected = []
    for t in (x, x2):
        if t is not None:
            flat = t.cpu().reshape(count, *t.shape[-2:])
            both = (rotate(flat, cos, sin, style, d).reshape(t.shape) for d in (torch.float64, dtype))
            expected.append(tuple(both))
    outs: list[Optional[torch.Tensor]] = [None, None]
    checks = []
    if form == "in_place":
        outs = [x, x2]
    elif form == "out":
        checks = [cases.Out(t.shape, dtype, device, draw(cases.out_layouts)) for t in (x, x2) if t is not None]
        outs = [c.tensor for c in checks] + [None] * (2 - len(checks))
    got = cases.run_variant(
        llm_speed.rope,
        x,
        None if positions is None else positions.to(device),
        x2=x2,
        out=outs[0],
        out2=outs[1],
        variant=draw(st.sampled_from(cases.variants("rope", device))),
        **options,
    )
    for returned, given_out, (exact, working) in zip(got if x2 is not None else [got], outs, expected):
        assert given_out is None or returned is given_out
        check(returned, exact, working)
    for returned, out in zip(got if x2 is not None else [got], checks):
        out.check(returned)


def test_rope_position_outside_the_tables(device):
    x = torch.ones(3, 1, 4, device=device)
    tables = {name: torch.ones(5, 2, device=device) for name in ("cos", "sin")}
    out = torch.full_like(x, 7.0)
    positions = torch.tensor([0, 5, 4], dtype=torch.int32, device=device)
    if device == "cpu":
        with pytest.raises(ValueError, match=r"rope: positions\[1\] is 5"):
            llm_speed.rope(x, positions, out=out, **tables)
        assert (out == 7).all()
    else:
        got = llm_speed.rope(x, positions, out=out, **tables)
        assert got[1].isnan().all() and got[0].isfinite().all() and got[2].isfinite().all()


# ---- kv_write ----------------------------------------------------------------------------------------


@cases.settings
@given(data=st.data())
def test_kv_write(device, data):
    draw = data.draw
    dtype, cache_dtype = draw(cases.float_dtypes), draw(cases.float_dtypes)
    tokens, heads = draw(leading_axes), draw(st.integers(1, 3))
    dims = draw(st.sampled_from([(8, 8), (64, 64), (24, 16), (5, 3)]))
    pages, page_size = draw(st.integers(2, 4)), draw(st.sampled_from([1, 4, 16]))
    count = math.prod(tokens)
    k, v = (cases.laid_out(cases.normal((*tokens, heads, d), dtype, device), draw(cases.layouts)) for d in dims)
    nans = (torch.full((pages, page_size, heads, d), float("nan"), dtype=cache_dtype, device=device) for d in dims)
    caches = [cases.laid_out(t, draw(st.sampled_from(["contiguous", "row_strided", "offset"]))) for t in nans]
    slots = torch.randperm(pages * page_size)[:count]
    slots = torch.cat([slots, torch.full((count - len(slots),), -1)])  # more tokens than slots: the rest is skipped
    slots[torch.rand(count) < 0.3] = -5
    expected = []
    for values, cache in zip((k, v), caches):
        flat = cache.cpu().reshape(pages * page_size, heads, -1).clone()
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                flat[slot] = values.cpu().reshape(count, heads, -1)[token].to(cache_dtype)
        expected.append(flat.reshape(cache.shape))
    variant = draw(st.sampled_from(cases.variants("kv_write", device)))
    result = cases.run_variant(llm_speed.kv_write, k, v, *caches, slots.reshape(tokens).to(device), variant=variant)
    assert result is None
    for cache, wanted in zip(caches, expected):
        torch.testing.assert_close(cache.cpu(), wanted, rtol=0, atol=0, equal_nan=True)


def test_kv_write_slot_past_the_cache(device):
    k = torch.ones(2, 1, 8, device=device)
    caches = [torch.zeros(2, 4, 1, 8, device=device) for _ in "kv"]
    slots = torch.tensor([1, 8], device=device)
    if device == "cpu":
        with pytest.raises(ValueError, match=r"kv_write: slots\[1\] is 8"):
            llm_speed.kv_write(k, k, *caches, slots)
        assert not any(cache.any() for cache in caches)
    else:
        llm_speed.kv_write(k, k, *caches, slots)
        assert caches[0].sum() == 8 and (caches[0][0, 1] == 1).all()
