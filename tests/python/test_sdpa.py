"""scaled_dot_product_attention against PyTorch's own, in float64 and in the working dtype."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
from oracle import check
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from llm_speed import Error, scaled_dot_product_attention

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
INF = float("inf")


def random(device, dtype, *shape):
    return torch.randn(shape).to(device, dtype)


def check_sdpa(q, k, v, attn_mask=None, **options):
    got = scaled_dot_product_attention(q, k, v, attn_mask, **options)
    mask = wide = None if attn_mask is None else attn_mask.cpu()
    if mask is not None:
        if mask.ndim < 2:  # some of PyTorch's CPU kernels fail at these
            mask = mask.expand(q.shape[-2], k.shape[-2])
        wide = mask if mask.dtype == torch.bool else mask.double()
    q, k, v = (x.cpu() for x in (q, k, v))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide, **options)
    working = F.scaled_dot_product_attention(q, k, v, mask, **options)
    check(got, exact, working)
    return got


def make_qkv(device, dtype=torch.float32, rows=7, kv_rows=13, heads=4, kv_heads=4, dim=24, dim_v=None):
    return (
        random(device, dtype, 2, heads, rows, dim),
        random(device, dtype, 2, kv_heads, kv_rows, dim),
        random(device, dtype, 2, kv_heads, kv_rows, dim_v or dim),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("rows, kv_rows", [(7, 13), (13, 7), (9, 9), (1, 5), (5, 1)])
def test_top_left_causal(device, dtype, is_causal, rows, kv_rows):
    check_sdpa(*make_qkv(device, dtype, rows, kv_rows, dim=20, dim_v=9), is_causal=is_causal)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("scale", [None, 0.0, -0.3, 0.8])
def test_gqa_and_scale(device, dtype, kv_heads, scale):
    is_causal = scale is None or scale > 0  # with others PyTorch's CPU kernel multiplies its -inf and gives NaN
    check_sdpa(*make_qkv(device, dtype, kv_heads=kv_heads), scale=scale, enable_gqa=True, is_causal=is_causal)


@pytest.mark.parametrize(
    "q, k, v",
    [
        ((), (), ()),
        ((3,), (3,), (3,)),
        ((2, 5, 3), (2, 5, 3), (2, 5, 3)),
        ((2, 1, 3), (1, 5, 3), (2, 5, 3)),
        ((2, 3), (1, 1), (1, 1)),
        ((1, 1), (2, 3), (2, 3)),
        ((2, 3), (2, 1), (2, 3)),
        ((), (2, 3), (2, 3)),
        ((3,), (2, 3), (3,)),
        ((3,), (), ()),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_leading_axes_broadcast(device, q, k, v, masked):
    tensors = (random(device, torch.float32, *axes, rows, 8) for axes, rows in ((q, 4), (k, 6), (v, 6)))
    check_sdpa(*tensors, (torch.rand(4, 6) < 0.7).to(device) if masked else None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 7, 13), (7, 13), (13,), (2, 1, 1, 13), (1, 4, 7, 1), (4, 1, 13), ()])
@pytest.mark.parametrize("kind", ["bool", "own", "float32"])
def test_masks(device, dtype, shape, kind):
    q, k, v = make_qkv(device, dtype, kv_heads=2)
    takes_part = torch.rand(shape).to(device) < 0.7
    if kind == "bool":
        mask = takes_part
    else:
        mask = torch.randn(shape, device=device).masked_fill(~takes_part, -INF)
        mask = mask.to(dtype if kind == "own" else torch.float32)
    check_sdpa(q, k, v, mask, enable_gqa=True)


def test_rows_that_see_nothing(device):
    q, k, v = make_qkv(device)
    mask = torch.rand(7, 13).to(device) < 0.5
    mask[2], mask[5] = False, False
    got = check_sdpa(q, k, v, mask)
    assert not got[:, :, [2, 5]].any() and got[:, :, 3].all()
    check_sdpa(q, k, v, torch.zeros(7, 13, device=device).masked_fill(~mask, -INF))
    no_keys = scaled_dot_product_attention(q, k[:, :, :0], v[:, :, :0])
    assert no_keys.shape == q.shape and not no_keys.any()


def test_a_hidden_key_cannot_harm(device):
    q, k, v = make_qkv(device)
    mask = torch.arange(13, device=device) != 4
    expected = scaled_dot_product_attention(q, k, v, mask)
    k[:, :, 4], v[:, :, 4] = torch.nan, INF
    assert torch.equal(scaled_dot_product_attention(q, k, v, mask), expected)


class Recorder(TorchDispatchMode):
    """The names of the torch operators that ran."""

    def __enter__(self):
        self.names = []
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_views_are_read_in_place(device):
    q, k, v = (random(device, torch.float32, 2, rows, 4, 16).transpose(1, 2) for rows in (7, 13, 13))
    mask = (torch.rand(2, 1, 7, 13) < 0.7).to(device)
    with Recorder() as recorder:
        out = scaled_dot_product_attention(q, k, v, mask)
    assert not {"clone", "copy_", "contiguous"} & set(recorder.names)
    assert out.shape == (2, 4, 7, 16) and out.transpose(1, 2).is_contiguous()
    out.transpose(1, 2).view(2, 7, 64)
    contiguous = scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous(), mask)
    assert torch.equal(out, contiguous)


def test_compile(device):
    q, k, v = make_qkv(device, torch.bfloat16, kv_heads=2)
    mask = (torch.rand(7, 13) < 0.7).to(device)

    def function(q, k, v, mask):
        causal = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return scaled_dot_product_attention(causal, k, v, mask, enable_gqa=True)

    torch._dynamo.reset()
    got = torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v, mask)
    assert torch.equal(got, function(q, k, v, mask))


def test_compile_once_for_all_lengths(device):
    def causal(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(causal, fullgraph=True, backend=counter, dynamic=True)
    counts = []
    for rows in (5, 9, 12):
        q, k, v = make_qkv(device, rows=rows, kv_rows=rows)
        assert torch.equal(function(q, k, v), causal(q, k, v))
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1


def test_signature():
    ours = inspect.signature(scaled_dot_product_attention).parameters
    defaults = {name: p.default for name, p in ours.items() if p.default is not inspect.Parameter.empty}
    assert list(ours) == "query key value attn_mask dropout_p is_causal scale enable_gqa".split()
    assert defaults == dict(attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)


def test_errors(device):
    q, k, v = make_qkv(device, kv_heads=2)
    wide = make_qkv(device)
    mask = torch.ones(7, 13, dtype=torch.bool, device=device)
    cases = [
        (NotImplementedError, "dropout_p", lambda: scaled_dot_product_attention(*wide, dropout_p=0.1)),
        (ValueError, "is_causal", lambda: scaled_dot_product_attention(*wide, mask, is_causal=True)),
        (ValueError, "broadcast", lambda: scaled_dot_product_attention(q, k, v)),
        (ValueError, "multiple", lambda: scaled_dot_product_attention(q[:, :3], k, v, enable_gqa=True)),
        (ValueError, "multiple", lambda: scaled_dot_product_attention(q, k, v[:, :1], enable_gqa=True)),
        (ValueError, "attn_mask", lambda: scaled_dot_product_attention(*wide, mask[:6])),
        (ValueError, "attn_mask", lambda: scaled_dot_product_attention(*wide, mask.expand(3, 1, 1, 7, 13))),
        (ValueError, "key has 1 axes", lambda: scaled_dot_product_attention(q, k[0, 0, 0], v)),
        (ValueError, "head_dim|shape", lambda: scaled_dot_product_attention(wide[0][..., :5], *wide[1:])),
        (TypeError, "dtype", lambda: scaled_dot_product_attention(wide[0].half(), *wide[1:])),
        (TypeError, "bias", lambda: scaled_dot_product_attention(*wide, mask.double())),
        (TypeError, "dtype", lambda: scaled_dot_product_attention(*(x.double() for x in wide))),
    ]
    for error, text, call in cases:
        with pytest.raises(error, match=text) as caught:
            call()
        assert isinstance(caught.value, Error)
    with torch.enable_grad(), pytest.raises(ValueError, match="gradient"):
        scaled_dot_product_attention(wide[0].requires_grad_(), *wide[1:])
