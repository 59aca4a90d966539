"""flash-attn 2's functions against attention by plain torch in float64."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
import torch
from oracle import as_torch, attend, check

import llm_speed
from llm_speed import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def random(device, dtype, *shape):
    return torch.randn(shape).to(device, dtype)


def make_qkv(device, dtype, batch=2, q_len=7, kv_len=13, heads=4, kv_heads=2, dim=24, dim_v=None):
    return (
        random(device, dtype, batch, q_len, heads, dim),
        random(device, dtype, batch, kv_len, kv_heads, dim),
        random(device, dtype, batch, kv_len, kv_heads, dim_v or dim),
    )


def check_dense(got, q, k, v, **options):
    """got (out, lse), against the oracle on tokens-major q, k, v."""
    q, k, v = (x.cpu().transpose(1, 2) for x in (q, k, v))
    exact, exact_lse = attend(q.double(), k.double(), v.double(), **options)
    working, working_lse = attend(q, k, v, **options)
    check(got[0].transpose(1, 2), exact, working)
    check(got[1], exact_lse, working_lse.float())


def both_sided_alibi(slopes, q_len, kv_len):
    """[.., q_len, kv_len] float64, by the loop that flash-attn documents."""
    bias = torch.zeros(*slopes.shape, q_len, kv_len, dtype=torch.float64)
    for i, j in itertools.product(range(q_len), range(kv_len)):
        bias[..., i, j] = -slopes.double().cpu() * abs(i + kv_len - q_len - j)
    return bias


# ---- flash_attn_func ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        dict(),
        dict(q_len=13, kv_len=5, heads=3, kv_heads=1, dim=7, dim_v=10),
        dict(q_len=1, kv_len=33, heads=2, kv_heads=2, dim=64),
        dict(batch=1, q_len=40, kv_len=40, heads=1, kv_heads=1, dim=128),
    ],
)
def test_dense(device, dtype, causal, sizes):
    q, k, v = make_qkv(device, dtype, **sizes)
    out, lse, probs = flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    assert probs is None
    check_dense((out, lse), q, k, v, causal=causal)
    assert torch.equal(out, flash_attn_func(q, k, v, causal=causal))


@pytest.mark.parametrize("window", [(0, 0), (3, 2), (-1, 1), (2, -1), [4, 0]])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 2.5])
def test_window_and_softcap(device, window, causal, softcap):
    q, k, v = make_qkv(device, torch.float32)
    got = flash_attn_func(
        q, k, v, softmax_scale=0.7, causal=causal, window_size=window, softcap=softcap, return_attn_probs=True
    )
    check_dense(got, q, k, v, scale=0.7, causal=causal, window=window, softcap=softcap)


def test_scale_of_zero_is_the_mean(device):
    q, k, v = make_qkv(device, torch.float32)
    got = flash_attn_func(q, k, v, softmax_scale=0.0)
    mean = v.double().cpu().mean(1, keepdim=True).repeat_interleave(2, 2).expand(-1, 7, -1, -1)
    check(got, mean, mean.float())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize("q_len", [1, 7])
def test_alibi(device, dtype, causal, per_batch, q_len):
    q, k, v = make_qkv(device, dtype, q_len=q_len)
    slopes = (torch.rand(2, 4) if per_batch else torch.rand(4)).to(device)
    got = flash_attn_func(q, k, v, causal=causal, softcap=3.0, alibi_slopes=slopes, return_attn_probs=True)
    check_dense(got, q, k, v, causal=causal, softcap=3.0, bias=both_sided_alibi(slopes, q_len, 13))


def test_packed(device):
    qkv = random(device, torch.bfloat16, 2, 9, 3, 4, 16)
    options = dict(causal=True, window_size=(4, 0), softcap=1.5, softmax_scale=0.3, return_attn_probs=True)
    options["alibi_slopes"] = torch.rand(4, device=device)
    expected = flash_attn_func(*(qkv[:, :, i].contiguous() for i in range(3)), **options)
    for got in (
        flash_attn_qkvpacked_func(qkv, **options),
        flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], **options),
    ):
        assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1]) and got[2] is None


def test_numpy():
    q, k, v = make_qkv("cpu", torch.float32)
    out, lse, _ = flash_attn_func(q.numpy(), k.numpy(), v.numpy(), causal=True, return_attn_probs=True)
    assert isinstance(out, np.ndarray)
    check_dense((torch.from_numpy(out), torch.from_numpy(lse)), q, k, v, causal=True)


def test_jax():
    jax = pytest.importorskip("jax")
    q, k, v = make_qkv("cpu", torch.float32)
    arrays = [jax.numpy.asarray(x.numpy()) for x in (q, k, v)]
    out, lse, _ = flash_attn_func(*arrays, causal=True, return_attn_probs=True)
    assert isinstance(out, jax.Array)
    check_dense((as_torch(out), as_torch(lse)), q, k, v, causal=True)


def test_empty(device):
    q, k, v = make_qkv(device, torch.float32, q_len=0)
    assert flash_attn_func(q, k, v).shape == (2, 0, 4, 24)
    q, k, v = make_qkv(device, torch.float32, kv_len=0)
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    assert not out.any() and (lse == -torch.inf).all()


# ---- varlen ------------------------------------------------------------------------------------------


def bounds(device, lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def check_ragged(got, q, k, v, q_lens, kv_lens, **options):
    """Each sequence of got (out, lse) on its own; k, v are lists."""
    row = 0
    assert got[1].shape == (q.shape[1], q.shape[0])
    for q_len, k_part, v_part in zip(q_lens, k, v):
        rows = slice(row, row + q_len)
        check_dense((got[0][None, rows], got[1][None, :, rows]), q[None, rows], k_part[None], v_part[None], **options)
        row += q_len


Q_LENS, KV_LENS = [3, 0, 7, 1, 5], [9, 4, 7, 0, 2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options", [dict(), dict(causal=True), dict(causal=True, window=(3, 0), softcap=2.0), dict(window=(1, 2))]
)
def test_varlen(device, dtype, options):
    q = random(device, dtype, sum(Q_LENS), 6, 24)
    k, v = random(device, dtype, sum(KV_LENS), 3, 24), random(device, dtype, sum(KV_LENS), 3, 16)
    cu_q, cu_k = bounds(device, Q_LENS), bounds(device, KV_LENS)
    given = {"window_size" if name == "window" else name: value for name, value in options.items()}
    got = flash_attn_varlen_func(q, k, v, cu_q, cu_k, max(Q_LENS), max(KV_LENS), return_attn_probs=True, **given)
    assert got[2] is None
    check_ragged(got, q, k.split(KV_LENS), v.split(KV_LENS), Q_LENS, KV_LENS, **options)


def test_varlen_alibi(device):
    q, kv = random(device, torch.float32, 5, 4, 16), random(device, torch.float32, 8, 2, 2, 16)
    slopes = torch.rand(4, device=device)
    cu_q, cu_k = bounds(device, [5]), bounds(device, [8])
    out, lse, _ = flash_attn_varlen_func(
        q, kv[:, 0], kv[:, 1], cu_q, cu_k, 5, 8, causal=True, alibi_slopes=slopes, return_attn_probs=True
    )
    bias = both_sided_alibi(slopes, 5, 8)
    check_dense((out[None], lse[None]), q[None], kv[None, :, 0], kv[None, :, 1], causal=True, bias=bias)


def test_varlen_packed(device):
    qkv = random(device, torch.float16, sum(Q_LENS), 3, 4, 16)
    cu, longest = bounds(device, Q_LENS), max(Q_LENS)
    options = dict(causal=True, window_size=(4, 0), softcap=1.5, softmax_scale=0.3, return_attn_probs=True)
    options["alibi_slopes"] = torch.rand(4, device=device)
    parts = [qkv[:, i].contiguous() for i in range(3)]
    expected = flash_attn_varlen_func(*parts, cu, cu, longest, longest, **options)
    for got in (
        flash_attn_varlen_qkvpacked_func(qkv, cu, longest, **options),
        flash_attn_varlen_kvpacked_func(qkv[:, 0], qkv[:, 1:], cu, cu, longest, longest, **options),
    ):
        assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1]) and got[2] is None


def paginate(dense, lengths, page_size):
    """dense [batch, max_len, ..] as shuffled pages, whose unused slots hold NaN: (pages, block_table)."""
    per_sequence = -(-dense.shape[1] // page_size)
    count = dense.shape[0] * per_sequence
    table = torch.randperm(count + 2)[:count].view(dense.shape[0], per_sequence)
    pages = dense.new_full((count + 2, page_size, *dense.shape[2:]), torch.nan)
    for b, length in enumerate(lengths):
        for start in range(0, length, page_size):
            stop = min(start + page_size, length)
            pages[table[b, start // page_size], : stop - start] = dense[b, start:stop]
    return pages, table.to(dense.device, torch.int32)


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_varlen_paged(device, page_size):
    q = random(device, torch.bfloat16, sum(Q_LENS), 4, 16)
    k, v = (random(device, torch.bfloat16, len(KV_LENS), max(KV_LENS), 2, 16) for _ in range(2))
    torch.manual_seed(1)
    k_pages, table = paginate(k, KV_LENS, page_size)
    torch.manual_seed(1)
    v_pages, _ = paginate(v, KV_LENS, page_size)
    cu_q, cu_k = bounds(device, Q_LENS), bounds(device, KV_LENS)
    got = flash_attn_varlen_func(
        q,
        k_pages,
        v_pages,
        cu_q,
        cu_k,
        max(Q_LENS),
        max(KV_LENS),
        causal=True,
        return_attn_probs=True,
        block_table=table,
    )
    cut = [[x[b, :n] for b, n in enumerate(KV_LENS)] for x in (k, v)]
    check_ragged(got, q, *cut, Q_LENS, KV_LENS, causal=True)


# ---- flash_attn_with_kvcache -------------------------------------------------------------------------


def rotate(x, cos, sin, positions, interleaved):
    """x [batch, len, heads, dim] rotated by rows `positions` [batch, len] of the tables, in x's dtype."""
    cos, sin = (table[positions].unsqueeze(2).to(x.dtype) for table in (cos, sin))
    half = cos.shape[-1]
    rotated, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        a, b = rotated[..., ::2], rotated[..., 1::2]
        pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = rotated[..., :half], rotated[..., half:]
        pairs = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([pairs, rest], -1)


class Cache:
    """A cache of `batch` sequences in one of the three layouts, beside a plain copy [batch, max_len, ..]."""

    def __init__(self, device, dtype, layout, lens, max_len=24, kv_heads=2, dim=24, page_size=4):
        batch = len(lens)
        self.lens = torch.tensor(lens, dtype=torch.int32, device=device)
        self.k, self.v = (random(device, dtype, batch, max_len, kv_heads, dim) for _ in range(2))
        self.arguments = dict(cache_seqlens=self.lens)
        if layout == "paged":
            torch.manual_seed(1)
            self.k_cache, table = paginate(self.k, lens, page_size)
            torch.manual_seed(1)
            self.v_cache, _ = paginate(self.v, lens, page_size)
            self.arguments["block_table"] = table
        else:
            rows = torch.randperm(batch + 2)[:batch] if layout == "indexed" else torch.arange(batch)
            shape = (batch + 2, max_len, kv_heads, dim)
            self.k_cache, self.v_cache = (self.k.new_full(shape, torch.nan) for _ in range(2))
            for b, row in enumerate(rows):
                self.k_cache[row, : lens[b]] = self.k[b, : lens[b]]
                self.v_cache[row, : lens[b]] = self.v[b, : lens[b]]
            if layout == "indexed":
                self.arguments["cache_batch_idx"] = rows.to(device, torch.int32)

    def row(self, cache, b, position):
        """Where the token at `position` of sequence b lies."""
        if "block_table" in self.arguments:
            size = cache.shape[1]
            return cache[self.arguments["block_table"][b, position // size], position % size]
        rows = self.arguments.get("cache_batch_idx")
        return cache[b if rows is None else rows[b], position]


LAYOUTS = ["contiguous", "indexed", "paged"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q_len", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_kvcache_reads(device, layout, dtype, q_len, causal):
    cache = Cache(device, dtype, layout, [5, 24, 0])
    q = random(device, dtype, 3, q_len, 4, 24)
    before = cache.k_cache.clone()
    out, lse = flash_attn_with_kvcache(
        q, cache.k_cache, cache.v_cache, causal=causal, return_softmax_lse=True, **cache.arguments
    )
    for b, n in enumerate(cache.lens.tolist()):
        one = slice(b, b + 1)
        check_dense((out[one], lse[one]), q[one], cache.k[one, :n], cache.v[one, :n], causal=causal)
    assert torch.equal(cache.k_cache.nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary", [None, "interleaved", "halves"])
@pytest.mark.parametrize("q_len, new_len", [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("options", [dict(), dict(causal=True), dict(window=(6, 1))])
def test_kvcache_appends(device, layout, rotary, q_len, new_len, options):
    dtype = torch.float32
    lens = [5, 19, 0]
    cache = Cache(device, dtype, layout, lens)
    q = random(device, dtype, 3, q_len, 4, 24)
    k, v = (random(device, dtype, 3, new_len, 2, 24) for _ in range(2))
    arguments = {"window_size" if name == "window" else name: value for name, value in options.items()}
    if rotary:
        angles = torch.rand(24, 8, dtype=torch.float64) * 6
        cos, sin = angles.cos().to(device, dtype), angles.sin().to(device, dtype)
        arguments.update(rotary_cos=cos, rotary_sin=sin, rotary_interleaved=rotary == "interleaved")
    out, lse = flash_attn_with_kvcache(
        q, cache.k_cache, cache.v_cache, k, v, return_softmax_lse=True, **arguments, **cache.arguments
    )

    results = []
    for kind in (torch.float64, dtype):
        q_, k_, v_ = (x.cpu().to(kind) for x in (q, k, v))
        if rotary:
            at = cache.lens.cpu().long()[:, None]
            tables = (cos.cpu().to(kind), sin.cpu().to(kind))
            k_ = rotate(k_, *tables, at + torch.arange(new_len), rotary == "interleaved")
            q_at = at + torch.arange(q_len) if options else at.expand(-1, q_len)
            q_ = rotate(q_, *tables, q_at, rotary == "interleaved")
        for b, n in enumerate(lens):
            keys = torch.cat([cache.k[b, :n].cpu().to(kind), k_[b]])
            values = torch.cat([cache.v[b, :n].cpu().to(kind), v_[b]])
            attended = attend(*(x.transpose(0, 1)[None] for x in (q_[b], keys, values)), **options)
            results.append((*attended, k_[b]))
    for b, n in enumerate(lens):
        exact, working = results[b], results[b + 3]
        check(out[b : b + 1].transpose(1, 2), exact[0], working[0])
        check(lse[b : b + 1], exact[1], working[1])
        written = torch.stack([cache.row(cache.k_cache, b, n + i) for i in range(new_len)])
        check(written, exact[2], working[2])
        for i in range(new_len):
            assert torch.equal(cache.row(cache.v_cache, b, n + i), v[b, i])
    # Nothing else has been touched.
    expected = 3 * new_len + sum(lens)
    assert int((~cache.v_cache.isnan()).all(-1).all(-1).sum()) == expected


@pytest.mark.parametrize("q_len, causal, window", [(4, True, (9, -1)), (1, False, (9, -1)), (4, False, (9, 0))])
def test_kvcache_scores(device, q_len, causal, window):
    cache = Cache(device, torch.float32, "contiguous", [24, 24, 24])
    q = random(device, torch.float32, 3, q_len, 4, 24)
    slopes = torch.rand(4, device=device)
    got = flash_attn_with_kvcache(
        q,
        cache.k_cache,
        cache.v_cache,
        softmax_scale=0.4,
        causal=causal,
        window_size=window,
        softcap=2.0,
        alibi_slopes=slopes,
        num_splits=3,
        return_softmax_lse=True,
    )
    bias = both_sided_alibi(slopes, q_len, 24)
    check_dense(got, q, cache.k, cache.v, scale=0.4, causal=causal, window=window, softcap=2.0, bias=bias)


def test_kvcache_lengths_by_int_or_left_out(device):
    cache = Cache(device, torch.float32, "paged", [24, 24])
    q = random(device, torch.float32, 2, 1, 4, 24)
    table = cache.arguments["block_table"]
    full = flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, block_table=table)
    assert torch.equal(full, flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, **cache.arguments))
    by_int = flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, cache_seqlens=11, block_table=table)
    eleven = torch.full((2,), 11, dtype=torch.int32, device=device)
    by_tensor = flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, cache_seqlens=eleven, block_table=table)
    assert torch.equal(by_int, by_tensor) and not torch.equal(by_int, full)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kvcache_append_past_the_room(device, layout):
    """Sequence 0 has no room for two more; no neighbour's rows may be written instead."""
    cache = Cache(device, torch.float32, layout, [23, 5])
    before = cache.k_cache.clone()
    q, k, v = (random(device, torch.float32, 2, 2, heads, 24) for heads in (4, 2, 2))
    call = lambda: flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, k, v, causal=True, **cache.arguments)
    if device == "cpu":
        with pytest.raises(ValueError, match="kv_write"):
            call()
        assert torch.equal(cache.k_cache.nan_to_num(), before.nan_to_num())
    else:
        out = call()
        assert out[0].isnan().all() and not out[1].isnan().any()
        changed = (cache.k_cache.nan_to_num() != before.nan_to_num()).any(-1).any(-1)
        assert int(changed.sum()) == 3


# ---- torch.compile, graphs ---------------------------------------------------------------------------


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


def test_compile(device):
    q, k, v = make_qkv(device, torch.bfloat16, q_len=6, kv_len=6)
    slopes = torch.rand(4, device=device)

    def dense(q, k, v):
        return flash_attn_func(q, k, v, causal=True, window_size=(3, 0), return_attn_probs=True)[:2]

    def biased(q, k, v):
        return (flash_attn_func(q, k, v, alibi_slopes=slopes),)

    def ragged(q, k, v):
        cu = bounds(device, [2, 4, 6])
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        return flash_attn_varlen_func(q, k, v, cu, cu, 6, 6, causal=True, return_attn_probs=True)[:2]

    for function in (dense, biased, ragged):
        for got, expected in zip(compiled(function)(q, k, v), function(q, k, v)):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compile_kvcache(device, layout):
    eager, traced = (Cache(device, torch.float32, layout, [5, 19, 0]) for _ in range(2))
    for name in ("k", "v", "k_cache", "v_cache"):
        getattr(traced, name).copy_(getattr(eager, name))
    traced.arguments = eager.arguments
    angles = torch.rand(24, 12, device=device) * 6

    def step(q, k, v, k_cache, v_cache, arguments):
        return flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, angles.cos(), angles.sin(), causal=True, return_softmax_lse=True, **arguments
        )

    fast = compiled(step)
    for _ in range(3):
        q, k, v = (random(device, torch.float32, 3, 1, heads, 24) for heads in (4, 2, 2))
        expected = step(q, k, v, eager.k_cache, eager.v_cache, eager.arguments)
        got = fast(q, k, v, traced.k_cache, traced.v_cache, eager.arguments)
        assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
        assert torch.equal(eager.k_cache.nan_to_num(), traced.k_cache.nan_to_num())
        eager.lens += 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cuda_graph(layout):
    eager, replayed = (Cache("cuda", torch.float16, layout, [5, 19, 0]) for _ in range(2))
    for name in ("k_cache", "v_cache"):
        getattr(replayed, name).copy_(getattr(eager, name))
    angles = torch.rand(24, 12, device="cuda").half() * 6
    cos, sin = angles.cos(), angles.sin()
    q, k, v = (random("cuda", torch.float16, 3, 1, heads, 24) for heads in (4, 2, 2))

    def step(cache):
        return flash_attn_with_kvcache(q, cache.k_cache, cache.v_cache, k, v, cos, sin, causal=True, **eager.arguments)

    step(replayed)  # what is appended at the same lengths again is the same
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(replayed)
    for _ in range(3):
        for x in (q, k, v):
            x.normal_()
        expected = step(eager)
        graph.replay()
        assert torch.equal(out, expected)
        assert torch.equal(eager.k_cache.nan_to_num(), replayed.k_cache.nan_to_num())
        eager.lens += 1


# ---- errors ------------------------------------------------------------------------------------------


def test_signatures():
    """The arguments of flash-attn 2, in its order, with its defaults."""
    tail = "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
    tail += "deterministic=False, return_attn_probs=False"
    lengths = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
    expected = {
        "flash_attn_func": f"q, k, v, {tail}",
        "flash_attn_kvpacked_func": f"q, kv, {tail}",
        "flash_attn_qkvpacked_func": f"qkv, {tail}",
        "flash_attn_varlen_func": f"q, k, v, {lengths}, {tail}, block_table=None",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {lengths}, {tail}",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {tail}",
        "flash_attn_with_kvcache": "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
        "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, "
        "causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
        "return_softmax_lse=False",
    }
    for name, arguments in expected.items():
        parameters = inspect.signature(getattr(llm_speed, name)).parameters.values()
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        assert ", ".join(str(p) for p in plain) == arguments


def test_errors(device):
    q, k, v = make_qkv(device, torch.float32)
    cu_q, cu_k = bounds(device, [7, 7]), bounds(device, [13, 13])
    ragged = (q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cu_q, cu_k, 7, 13)
    lens = torch.full((2,), 4, dtype=torch.int32, device=device)
    table = torch.zeros(2, 1, dtype=torch.int32, device=device)
    slopes = torch.rand(2, 4, device=device)
    new = dict(k=k[:, :1], v=v[:, :1])
    cases = [
        (NotImplementedError, "dropout_p", lambda: flash_attn_func(q, k, v, 0.1)),
        (NotImplementedError, "dropout_p", lambda: flash_attn_varlen_func(*ragged, dropout_p=0.5)),
        (NotImplementedError, "alibi", lambda: flash_attn_varlen_func(*ragged, alibi_slopes=slopes[0])),
        (NotImplementedError, "alibi", lambda: flash_attn_varlen_func(*ragged, causal=True, alibi_slopes=slopes)),
        (NotImplementedError, "alibi_slopes", lambda: flash_attn_with_kvcache(q, k, v, alibi_slopes=slopes[0])),
        (NotImplementedError, "cache_leftpad", lambda: flash_attn_with_kvcache(q, k, v, cache_leftpad=lens)),
        (TypeError, "alibi_slopes", lambda: flash_attn_func(q, k, v, alibi_slopes=slopes.double())),
        (TypeError, "q.* dtype|dtype.* q|q is", lambda: flash_attn_func(q.half(), k, v)),
        (ValueError, "k and v", lambda: flash_attn_with_kvcache(q, k, v, k=k[:, :1], cache_seqlens=lens)),
        (ValueError, "cache_seqlens", lambda: flash_attn_with_kvcache(q, k, v, **new)),
        (ValueError, "rotary", lambda: flash_attn_with_kvcache(q, k, v, rotary_cos=q, rotary_sin=q)),
        (
            ValueError,
            "cache_batch_idx",
            lambda: flash_attn_with_kvcache(q, k, v, cache_batch_idx=lens, block_table=table),
        ),
        (TypeError, "kv_lens", lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=lens.long())),
        (ValueError, "window_left", lambda: flash_attn_func(q, k, v, window_size=(-2, 0))),
    ]
    if device == "cpu":
        cases.append((ValueError, "max_q_len", lambda: flash_attn_varlen_func(*ragged[:5], 3, 13)))
        cases.append((ValueError, "kv_lens", lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=14)))
    for error, text, call in cases:
        with pytest.raises(error, match=text) as caught:
            call()
        assert isinstance(caught.value, llm_speed.Error)
    with torch.enable_grad(), pytest.raises(ValueError, match="gradient"):
        flash_attn_func(q.requires_grad_(), k, v)


def test_numpy_cache_cannot_grow():
    q, k, v = (x.numpy() for x in make_qkv("cpu", torch.float32))
    lens = np.full(2, 4, np.int32)
    with pytest.raises(TypeError, match="torch"):
        flash_attn_with_kvcache(q, k, v, k=k[:, :1], v=v[:, :1], cache_seqlens=lens)
    assert flash_attn_with_kvcache(q, k, v, cache_seqlens=lens).shape == (2, 7, 4, 24)
