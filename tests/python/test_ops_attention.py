"""attn_prefill, attn_decode, attn_merge against plain torch in float64."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
import llm_speed
from oracle import check


class Options(NamedTuple):
    """What both forms of attention share."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    scale: Optional[float] = None
    softcap: float = 0.0
    alibi_slopes: Optional[torch.Tensor] = None
    sinks: Optional[torch.Tensor] = None


def draw_options(draw: Any, heads: int, device: str) -> Options:
    def per_head() -> Optional[torch.Tensor]:
        return torch.rand(heads).to(device) if draw(st.integers(0, 3)) == 3 else None

    return Options(
        causal=draw(st.booleans(), label="causal"),
        window=draw(st.sampled_from([(-1, -1), (0, -1), (3, -1), (5, 2), (-1, 0)]), label="window"),
        scale=draw(st.sampled_from([None, 0.3]), label="scale"),
        softcap=draw(st.sampled_from([0.0, 2.0]), label="softcap"),
        alibi_slopes=per_head(),
        sinks=per_head(),
    )


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: Options,
    dtype: torch.dtype,
    bias: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence: q [q_len, heads, dim], k, v [kv_len, kv_heads, ..]; out [q_len, heads, ..], lse [heads, q_len]."""
    q, k, v = (t.to(dtype).transpose(0, 1) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[0] // t.shape[0], 0) for t in (k, v))
    q_len, kv_len = q.shape[1], k.shape[1]
    scores = q @ k.transpose(1, 2) * (o.scale or 1 / math.sqrt(q.shape[-1]))
    if o.softcap:
        scores = o.softcap * torch.tanh(scores / o.softcap)
    here = torch.arange(q_len, device=q.device)[:, None] + kv_len - q_len
    there = torch.arange(kv_len, device=q.device)[None]
    if o.alibi_slopes is not None:
        scores = scores + o.alibi_slopes.to(dtype)[:, None, None] * (there - here)
    if bias is not None:
        scores = scores + bias.to(dtype)
    hidden = torch.zeros(q_len, kv_len, dtype=torch.bool, device=q.device)
    if o.causal:
        hidden |= there > here
    if o.window[0] >= 0:
        hidden |= there < here - o.window[0]
    if o.window[1] >= 0:
        hidden |= there > here + o.window[1]
    scores = scores.masked_fill(hidden, -math.inf)
    if o.sinks is not None:  # one more score, with a value of zero
        sinks = o.sinks.to(dtype)[:, None, None].expand(-1, q_len, 1)
        scores, v = torch.cat([scores, sinks], -1), torch.cat([v, torch.zeros_like(v[:, :1])], 1)
        if not kv_len:
            v = v.new_zeros(q.shape[0], 1, v.shape[-1])
    lse = scores.logsumexp(-1) if scores.shape[-1] else scores.new_full(scores.shape[:2], -math.inf)
    weights = (scores - lse[..., None]).exp().masked_fill(lse.isinf()[..., None], 0)
    return (weights @ v).transpose(0, 1), lse


def check_all(got: torch.Tensor, lse: torch.Tensor, expected: list[Any], dtype: torch.dtype, join: Any) -> None:
    """`expected`: for each sequence a function of a dtype that gives its (out, lse); `join` puts them together.

    Plain torch in half precision rounds the scores too, so its lse says nothing: float32's is the yardstick there. An
    error of lse is a relative one of the softmax, so that an ulp of 1 counts for lse near 0 too.
    """
    exact = join([e(torch.float64) for e in expected])
    working, plain = join([e(dtype) for e in expected]), join([e(torch.float32) for e in expected])
    check(got, exact[0], working[0])
    slack = (plain[1] - exact[1]).abs().nan_to_num(0) + torch.finfo(torch.float32).eps
    check(lse, exact[1], (exact[1] + slack).float())


head_counts = st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 1)])
head_dims = st.sampled_from([(8, 8), (64, 64), (80, 80), (24, 16), (7, 5)])
unit_inner = st.sampled_from(["contiguous", "row_strided", "offset", "inner_strided", "transposed_heads"])


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    """As cases.laid_out; "transposed_heads" is [.., heads, tokens, dim] memory, as Hugging Face has it."""
    if layout == "transposed_heads":
        return x.transpose(-2, -3).contiguous().transpose(-2, -3)
    return cases.laid_out(x, layout)


@pytest.mark.parametrize("with_bias", [False, True])
@cases.settings
@given(data=st.data())
def test_prefill_dense(device, with_bias, data):
    draw = data.draw
    dtype, (heads, kv_heads), (dim, dim_v) = draw(cases.float_dtypes), draw(head_counts), draw(head_dims)
    batch = draw(st.sampled_from([0, 1, 2]))
    q_len, kv_len = draw(st.sampled_from([0, 1, 3, 17, 40])), draw(st.sampled_from([0, 1, 5, 33, 70]))
    q = in_layout(cases.normal((batch, q_len, heads, dim), dtype, device), draw(unit_inner))
    k = in_layout(cases.normal((batch, kv_len, kv_heads, dim), dtype, device), draw(unit_inner))
    v = in_layout(cases.normal((batch, kv_len, kv_heads, dim_v), dtype, device), draw(unit_inner))
    o = draw_options(draw, heads, device)
    bias, options = None, {}
    if with_bias:
        bias_dtype = draw(st.sampled_from([torch.float32, dtype]))
        sizes = [draw(st.sampled_from([1, n])) for n in (batch, heads, q_len)]  # axes of 1 repeat
        bias = cases.normal((*sizes, kv_len), bias_dtype, device)
        bias[torch.rand(bias.shape, device=device) < 0.3] = -math.inf
        bias = bias.expand(batch, heads, q_len, kv_len)
        options["bias"] = bias
    out = cases.Out((batch, q_len, heads, dim_v), dtype, device, draw(cases.out_layouts))
    got, lse = cases.run_variant(
        llm_speed.attn_prefill,
        q,
        k,
        v,
        return_lse=True,
        out=out.tensor,
        variant=draw(st.sampled_from(cases.variants("attn_prefill", device))),
        **o._asdict(),
        **options,
    )
    out.check(got)
    assert lse.shape == (batch, heads, q_len) and lse.dtype == torch.float32
    if batch:
        expected = [
            lambda d, i=i: attend(q[i], k[i], v[i], o, d, None if bias is None else bias[i]) for i in range(batch)
        ]
        check_all(got, lse, expected, dtype, lambda parts: tuple(torch.stack(p) for p in zip(*parts)))


@cases.settings
@given(data=st.data())
def test_prefill_ragged(device, data):
    draw = data.draw
    dtype, (heads, kv_heads), (dim, dim_v) = draw(cases.float_dtypes), draw(head_counts), draw(head_dims)
    q_lens = draw(st.lists(st.sampled_from([0, 1, 4, 19]), min_size=1, max_size=3))
    kv_lens = [draw(st.sampled_from([0, 1, 7, 35])) for _ in q_lens]
    spare = draw(st.sampled_from([0, 2]))  # rows past the last sequence are nobody's
    q = in_layout(cases.normal((sum(q_lens) + spare, heads, dim), dtype, device), draw(unit_inner))
    k = in_layout(cases.normal((sum(kv_lens) + spare, kv_heads, dim), dtype, device), draw(unit_inner))
    v = in_layout(cases.normal((sum(kv_lens) + spare, kv_heads, dim_v), dtype, device), draw(unit_inner))
    cu_q, cu_kv = (
        torch.tensor([0, *torch.tensor(lens).cumsum(0).tolist()], dtype=torch.int32, device=device)
        for lens in (q_lens, kv_lens)
    )
    o = draw_options(draw, heads, device)
    out = torch.full((q.shape[0], heads, dim_v), float("nan"), dtype=dtype, device=device)
    lse = torch.full((heads, q.shape[0]), float("nan"), device=device)
    got = cases.run_variant(
        llm_speed.attn_prefill,
        q,
        k,
        v,
        cu_seqlens_q=cu_q,
        cu_seqlens_kv=cu_kv,
        max_q_len=max(q_lens) + draw(st.sampled_from([0, 3])),
        out=out,
        lse=lse,
        variant=draw(st.sampled_from(cases.variants("attn_prefill", device))),
        **o._asdict(),
    )
    assert got[0] is out and got[1] is lse
    end = sum(q_lens)
    assert out[end:].isnan().all() and lse[:, end:].isnan().all()
    starts_q, starts_kv = cu_q.tolist(), cu_kv.tolist()
    expected = [
        lambda d, i=i: attend(*(t[s[i] : s[i + 1]] for t, s in ((q, starts_q), (k, starts_kv), (v, starts_kv))), o, d)
        for i in range(len(q_lens))
    ]
    join = lambda parts: (torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts], 1))  # noqa: E731
    check_all(out[:end], lse[:, :end], expected, dtype, join)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@cases.settings
@given(data=st.data())
def test_decode(device, paged, ragged, data):
    draw = data.draw
    dtype, cache_dtype = draw(cases.float_dtypes), draw(cases.float_dtypes)
    (heads, kv_heads), (dim, dim_v) = draw(head_counts), draw(head_dims)
    batch = draw(st.integers(1, 3))
    kv_lens = [draw(st.sampled_from([0, 1, 6, 33, 64])) for _ in range(batch)]
    q_lens = (
        [draw(st.sampled_from([0, 1, 3])) for _ in range(batch)] if ragged else [draw(st.sampled_from([1, 2]))] * batch
    )
    if draw(st.booleans(), label="queries are in the cache"):
        kv_lens = [max(n, m) for n, m in zip(kv_lens, q_lens)]
    # Every sequence's keys, then the cache that holds them among NaN.
    keys, values = ([cases.normal((n, kv_heads, d), cache_dtype, device) for n in kv_lens] for d in (dim, dim_v))
    options: dict[str, Any] = {}
    if paged:
        page_size = draw(st.sampled_from([1, 4, 16]))
        counts = [-(-n // page_size) for n in kv_lens]
        pages = torch.randperm(sum(counts) + 2)
        table = torch.full((batch, max(counts) + 1), -7, dtype=torch.int32)  # unused entries may hold anything
        shapes = [(sum(counts) + 2, page_size, kv_heads, d) for d in (dim, dim_v)]
    else:
        shapes = [(batch, max(kv_lens) + 3, kv_heads, d) for d in (dim, dim_v)]
    caches = [
        cases.laid_out(
            torch.full(shape, float("nan"), dtype=cache_dtype, device=device),
            draw(st.sampled_from(["contiguous", "row_strided", "offset"])),
        )
        for shape in shapes
    ]
    used = 0
    for i, n in enumerate(kv_lens):
        for parts, cache in ((keys, caches[0]), (values, caches[1])):
            if paged:
                for page in range(counts[i]):
                    rows = parts[i][page * page_size : (page + 1) * page_size]
                    cache[pages[used + page], : len(rows)] = rows
                    table[i, page] = pages[used + page]
            else:
                cache[i, :n] = parts[i]
        used += counts[i] if paged else 0
    if paged:
        options["page_table"] = table.to(device)
    if ragged:
        starts = [0, *torch.tensor(q_lens).cumsum(0).tolist()]
        q = cases.normal((starts[-1], heads, dim), dtype, device)
        options |= {
            "cu_seqlens_q": torch.tensor(starts, dtype=torch.int32, device=device),
            "max_q_len": max(q_lens),
        }
        queries = [q[starts[i] : starts[i + 1]] for i in range(batch)]
    else:
        q = in_layout(cases.normal((batch, q_lens[0], heads, dim), dtype, device), draw(unit_inner))
        queries = list(q)
    o = draw_options(draw, heads, device)
    out = cases.Out((*q.shape[:-1], dim_v), dtype, device, draw(cases.out_layouts))
    got, lse = cases.run_variant(
        llm_speed.attn_decode,
        q,
        *caches,
        torch.tensor(kv_lens, dtype=torch.int32, device=device),
        num_splits=draw(st.sampled_from([0, 1, 3])),
        return_lse=True,
        out=out.tensor,
        variant=draw(st.sampled_from(cases.variants("attn_decode", device))),
        **o._asdict(),
        **options,
    )
    out.check(got)
    expected = [lambda d, i=i: attend(queries[i], keys[i], values[i], o, d) for i in range(batch)]

    def join(parts: Any) -> Any:
        if ragged:
            return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts], 1)
        return tuple(torch.stack(p) for p in zip(*parts))

    check_all(got, lse, expected, dtype, join)


def test_decode_of_one_query_is_causal_or_not_alike(device):
    """The default is causal; for one query a sequence that changes nothing."""
    q, cache = cases.normal((2, 1, 2, 64), torch.float16, device), cases.normal((2, 9, 2, 64), torch.float16, device)
    lens = torch.tensor([9, 4], dtype=torch.int32, device=device)
    default = llm_speed.attn_decode(q, cache, cache, lens)
    assert torch.equal(default, llm_speed.attn_decode(q, cache, cache, lens, causal=False))


def test_decode_bad_lengths(device):
    q, cache = torch.ones(2, 1, 1, 8, device=device), torch.ones(2, 4, 1, 8, device=device)
    out = torch.full_like(q, 7.0)
    lens = torch.tensor([2, 5], dtype=torch.int32, device=device)
    table = torch.tensor([[0], [9]], dtype=torch.int32, device=device)
    for kv_lens, options, words in (
        (lens, {}, r"attn_decode: kv_lens\[1\] is 5"),
        (lens.clamp(max=4), {"page_table": table}, r"attn_decode: page_table\[1, 0\] is 9"),
    ):
        if device == "cpu":
            with pytest.raises(ValueError, match=words):
                llm_speed.attn_decode(q, cache, cache, kv_lens, out=out, **options)
            assert (out == 7).all()
        else:
            got = llm_speed.attn_decode(q, cache, cache, kv_lens, **options)
            assert got[1].isnan().all() and (got[0] == 1).all()


@pytest.mark.parametrize("form", ["fresh", "over_a", "over_b"])
@cases.settings
@given(data=st.data())
def test_merge(device, form, data):
    """Two halves of the keys, merged, are attention over all of them; and the formula itself."""
    draw = data.draw
    dtype, tokens, heads = (
        draw(cases.float_dtypes),
        draw(st.sampled_from([(0,), (1,), (7,), (2, 3)])),
        draw(st.integers(1, 3)),
    )
    dim = draw(st.sampled_from([1, 8, 80]))
    usable = cases.layouts if form == "fresh" else st.sampled_from(["contiguous", "row_strided", "offset"])
    a, b = (cases.laid_out(cases.normal((*tokens, heads, dim), dtype, device), draw(usable)) for _ in "ab")
    lses = []
    for _ in "ab":
        lse = cases.normal((*tokens, heads), torch.float32, device, 5.0)
        lse[torch.rand(lse.shape, device=device) < 0.25] = -math.inf
        lses.append(cases.laid_out(lse, draw(usable)))
    if 0 not in a.stride():
        a[lses[0].isinf()] = math.nan  # an empty side is not read

    def formula(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        la, lb = (lse.to(dtype) for lse in lses)
        total = torch.logaddexp(la, lb)
        weights = [(lse - total).exp().nan_to_num(0)[..., None] for lse in (la, lb)]
        merged = sum(w * torch.where(w > 0, t.to(dtype), 0) for w, t in zip(weights, (a, b)))
        return merged, total

    exact, working = formula(torch.float64), formula(torch.float32)
    outs = {"fresh": (None, None), "over_a": (a, lses[0]), "over_b": (b, lses[1])}[form]
    got, lse = cases.run_variant(
        llm_speed.attn_merge,
        a,
        lses[0],
        b,
        lses[1],
        out=outs[0],
        lse=outs[1],
        variant=draw(st.sampled_from(cases.variants("attn_merge", device))),
    )
    assert form == "fresh" or (got is outs[0] and lse is outs[1])
    check(got, exact[0], working[0].to(dtype))
    check(lse, exact[1], working[1])


def test_merge_of_two_halves_is_the_whole(device):
    q, k, v = (cases.normal((1, n, 2, 64), torch.float32, device) for n in (5, 40, 40))
    parts = [llm_speed.attn_prefill(q, k[:, s], v[:, s], return_lse=True) for s in (slice(0, 13), slice(13, 40))]
    (a, lse_a), (b, lse_b) = [(out[0], lse[0].T) for out, lse in parts]  # lse [heads, tokens] by its strides
    got, lse = llm_speed.attn_merge(a, lse_a, b, lse_b)
    exact, plain = (attend(q[0], k[0], v[0], Options(), d) for d in (torch.float64, torch.float32))
    check(got, exact[0], plain[0])
    check(lse, exact[1].T, plain[1].T)
