"""Arrays of every kind: NumPy, JAX, CuPy, buffers, parameters, hand-written DLPack; and what a call leaves behind."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import subprocess
import sys
import threading
from typing import Any, Callable, Optional

import numpy as np
import pytest
import torch

import llm_speed
from oracle import as_torch

ml_dtypes = pytest.importorskip("ml_dtypes")

x32 = np.random.default_rng(1).standard_normal((6, 64), np.float32)
w32 = np.random.default_rng(2).standard_normal(64, np.float32)
NUMPY_DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def same_bits(a: Any, b: Any) -> bool:
    a, b = as_torch(a), as_torch(b)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.itemsize]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(whole), b.view(whole))


def torch_rmsnorm(x: np.ndarray) -> torch.Tensor:
    return llm_speed.rmsnorm(as_torch(x), as_torch(w32.astype(x.dtype)))


# ---- NumPy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY_DTYPES.values(), ids=NUMPY_DTYPES)
def test_numpy_equals_torch_bit_for_bit(dtype):
    x, w = x32.astype(dtype), w32.astype(dtype)
    y = llm_speed.rmsnorm(x, w)
    assert type(y) is np.ndarray and y.dtype == x.dtype
    assert same_bits(y, torch_rmsnorm(x))
    out = np.full_like(x, np.nan)
    assert llm_speed.rmsnorm(x, w, out=out) is out
    assert same_bits(out, y)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES.values(), ids=NUMPY_DTYPES)
def test_every_op_takes_numpy(dtype):
    """Each op on NumPy arrays and on torch tensors of the same memory gives the same bits."""
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)

    def ints(*values: int, kind: type = np.int32) -> np.ndarray:
        return np.array(values, kind)

    cache = np.zeros((3, 4, 2, 16), dtype)
    lse = rng.standard_normal((5, 2)).astype(np.float32)
    q, k, v = normal(1, 5, 4, 16), normal(1, 7, 2, 16), normal(1, 7, 2, 16)
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
        (llm_speed.embed, (ints(1, 0, 3), normal(4, 8)), {"scale": 2.0}),
        (llm_speed.rmsnorm, (normal(3, 8),), {}),
        (llm_speed.add_rmsnorm, (normal(3, 8), normal(3, 8)), {}),
        (llm_speed.layernorm, (normal(3, 8), normal(8), normal(8)), {}),
        (llm_speed.gemm, (normal(3, 8), normal(5, 8)), {"trans_b": True}),
        (llm_speed.gemm, (normal(2, 3, 8), normal(8, 5)), {"out_dtype": "f32"}),
        (llm_speed.gemm_grouped, (normal(5, 8), normal(2, 8, 6), ints(0, 2, 5)), {"act": "silu"}),
        (llm_speed.linear, (normal(2, 3, 8), normal(5, 8), normal(5)), {}),
        (llm_speed.rope, (normal(3, 2, 8), ints(0, 9, 4)), {"x2": normal(3, 1, 8), "style": "gptj"}),
        (llm_speed.kv_write, (normal(2, 2, 16), normal(2, 2, 16), cache, cache.copy(), ints(5, 0, kind=np.int64)), {}),
        (llm_speed.attn_prefill, (q, k, v), {"causal": True, "return_lse": True}),
        (llm_speed.attn_decode, (q[:, :1], k, v, ints(7)), {}),
        (llm_speed.attn_merge, (normal(5, 2, 8), lse, normal(5, 2, 8), lse + 1), {}),
        (llm_speed.gated_act, (normal(3, 8), normal(3, 8)), {"act": "gelu"}),
        (llm_speed.sample, (normal(3, 50),), {"temperature": 0.8, "seed": 5, "return_probs": True}),
    ]
    for function, args, options in calls:
        copies = [as_torch(a) for a in args]
        torch_options = {n: as_torch(o) if isinstance(o, np.ndarray) else o for n, o in options.items()}
        got, wanted = function(*args, **options), function(*copies, **torch_options)
        if got is None:  # kv_write's outputs are arguments
            got, wanted = args[2:4], copies[2:4]
        pairs = zip(got, wanted) if isinstance(got, tuple) else [(got, wanted)]
        for a, b in pairs:
            assert type(a) is np.ndarray and same_bits(a, b), function.__name__


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_of_ml_dtypes(name):
    x = x32.astype(getattr(ml_dtypes, name))
    as_tensor = torch.from_numpy(x.view(np.uint8)).view(getattr(torch, name))
    for short in (None, "bf16", "f8_e4m3", "f8_e5m2"):
        got = llm_speed.gemm(x, x, trans_b=True, out_dtype=short)
        wanted = llm_speed.gemm(as_tensor, as_tensor, trans_b=True, out_dtype=short)
        assert str(got.dtype) == str(wanted.dtype).rpartition(".")[2]
        assert got.tobytes() == wanted.view(torch.uint8).numpy().tobytes()


def test_numpy_layouts():
    wanted = torch_rmsnorm(x32)
    record = np.zeros(6, [("flag", np.uint8), ("row", np.float32, 64)])  # rows 257 bytes apart: no stride in elements
    record["row"] = x32
    aligned = np.zeros(6, np.dtype([("row", np.float32, 64), ("flag", np.int32)]))
    aligned["row"] = x32
    forms = {
        "fortran": np.asfortranarray(x32),
        "rows backwards": np.ascontiguousarray(x32[::-1])[::-1],
        "columns backwards": np.ascontiguousarray(x32[:, ::-1])[:, ::-1],
        "every other column": np.repeat(x32, 2, axis=1)[:, ::2],
        "field of a record": aligned["row"],
        "field of a packed record": record["row"],
        "read-only": x32.copy(),
        "subclass": x32.view(np.recarray),
    }
    forms["read-only"].setflags(write=False)
    for name, form in forms.items():
        assert same_bits(llm_speed.rmsnorm(form, w32), wanted), name
        assert np.array_equal(form, x32), name
    unaligned = np.frombuffer(b"\0" + x32.tobytes(), np.float32, offset=1).reshape(x32.shape)
    with pytest.raises(ValueError, match="rmsnorm: x.data .* aligned"):
        llm_speed.rmsnorm(unaligned, w32)
    repeated = np.broadcast_to(x32[0], (6, 64))
    assert same_bits(llm_speed.rmsnorm(repeated, w32), torch_rmsnorm(np.ascontiguousarray(repeated)))


def test_numpy_outputs_in_place_or_refused():
    wide = np.full((6, 80), np.nan, np.float32)
    assert llm_speed.rmsnorm(x32, w32, out=wide[:, 8:72]) is not None
    assert same_bits(np.ascontiguousarray(wide[:, 8:72]), torch_rmsnorm(x32))
    assert np.isnan(wide[:, :8]).all() and np.isnan(wide[:, 72:]).all()
    frozen = np.full((6, 64), np.nan, np.float32)
    frozen.setflags(write=False)
    backwards = np.full((6, 64), np.nan, np.float32)
    for out in (frozen, backwards[::-1], backwards[:, ::-1], np.asfortranarray(backwards)):
        with pytest.raises(ValueError, match="rmsnorm: out") as caught:
            llm_speed.rmsnorm(x32, w32, out=out)
        assert isinstance(caught.value, llm_speed.Error)
        assert np.isnan(out).all()


@pytest.mark.parametrize(
    "bad",
    [
        x32.astype(">f4"),
        x32.astype(np.float64),
        x32.astype(np.complex64),
        x32.astype(object),
        x32 > 0,
        x32.astype("U8"),
        np.zeros((6, 64), [("a", np.float32)]),
        x32.astype(ml_dtypes.float8_e4m3fn),
        np.zeros((6, 64), "M8[s]"),
        x32.astype(np.uint16),
    ],
    ids=lambda a: str(a.dtype),
)
def test_numpy_dtypes_that_no_op_takes(bad):
    out = np.full((6, 64), np.nan, np.float32)
    with pytest.raises(TypeError, match="rmsnorm: x"):
        llm_speed.rmsnorm(bad, w32, out=out)
    with pytest.raises(TypeError, match="rmsnorm: out"):
        llm_speed.rmsnorm(x32, w32, out=bad)
    assert np.isnan(out).all()
    llm_speed.rmsnorm(x32, w32, out=out)
    assert np.isfinite(out).all()


def test_too_many_or_too_few_axes():
    for shape in ((), (1, 1, 1, 1, 1, 64)):
        with pytest.raises(ValueError, match="rmsnorm: x"):
            llm_speed.rmsnorm(np.ones(shape, np.float32))
    with pytest.raises(ValueError, match="embed: ids"):
        llm_speed.embed(np.zeros((1,) * 6, np.int32), x32, out=np.zeros((1, 64), np.float32))
    # 0-d ids are one token.
    assert same_bits(llm_speed.embed(np.array(2, np.int32), x32), x32[2])


# ---- Other frameworks, buffers -----------------------------------------------------------------------


def test_jax(device):
    jax = pytest.importorskip("jax")
    platform = "cpu" if device == "cpu" else "gpu"
    try:
        jax_device = jax.devices(platform)[0]
    except RuntimeError:
        pytest.skip(f"JAX has no {platform} here")
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        x, w = (jax.device_put(a.astype(dtype), jax_device) for a in (x32, w32))
        y = llm_speed.rmsnorm(x, w)
        assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.devices() == {jax_device}
        wanted = llm_speed.rmsnorm(as_torch(x).to(device), as_torch(w).to(device))
        assert same_bits(np.asarray(y), wanted)
        normed, h = llm_speed.add_rmsnorm(x, x, w)
        assert same_bits(np.asarray(h), np.asarray(x + x)) and normed.shape == x.shape
    assert same_bits(
        np.asarray(llm_speed.gemm(x, x, trans_b=True)),
        llm_speed.gemm(as_torch(x).to(device), as_torch(x).to(device), trans_b=True),
    )
    assert llm_speed.sample(x).dtype == np.int32
    # JAX has no 64-bit integers unless asked; it warns, and then makes others.
    with pytest.warns(UserWarning, match="int64"), pytest.raises(TypeError, match="x64"):
        llm_speed.sample(x, temperature=1.0, seed=3)


def test_cupy():
    cupy = pytest.importorskip("cupy")
    x, w = cupy.asarray(x32), cupy.asarray(w32)
    y = llm_speed.rmsnorm(x, w)
    assert isinstance(y, cupy.ndarray)
    assert same_bits(cupy.asnumpy(y), llm_speed.rmsnorm(as_torch(x32).cuda(), as_torch(w32).cuda()))
    with cupy.cuda.Stream():
        assert same_bits(cupy.asnumpy(llm_speed.rmsnorm(x, w)), cupy.asnumpy(y))


def test_buffers_without_a_framework():
    """memoryview, bytes, bytearray and array.array by the buffer protocol; outputs are given, or it is a TypeError."""
    row, wanted = array.array("f", x32[0]), torch_rmsnorm(x32[:1])[0]
    for out in (array.array("f", [0.0] * 64), memoryview(bytearray(256)).cast("f"), (ctypes.c_float * 64)()):
        llm_speed.rmsnorm(row, memoryview(w32), out=out)
        assert same_bits(np.asarray(out, np.float32), wanted)
    ids = memoryview(array.array("i", [1, 0]))
    table = memoryview(x32.tobytes()).cast("B").cast("f", (6, 64))
    out = np.empty((2, 64), np.float32)
    llm_speed.embed(ids, table, out=out)
    assert same_bits(out, x32[[1, 0]])
    blocks = bytes(range(34)) * 3  # read-only bytes as one q8_0 block a row
    with pytest.raises(ValueError, match="embed: table"):
        llm_speed.embed(np.array([2], np.int32), blocks, table_type="q8_0", out=np.empty((1, 32), np.float32))
    two_axes = memoryview(blocks).cast("B", (3, 34))
    llm_speed.embed(np.array([2], np.int32), two_axes, table_type="q8_0", out=out[:1, :32])
    assert np.isfinite(out[:1, :32]).all()
    with pytest.raises(ValueError, match="rmsnorm: out is read-only"):
        llm_speed.rmsnorm(row, out=bytes(256))
    with pytest.raises(TypeError, match="out="):
        llm_speed.rmsnorm(memoryview(x32))


def test_parameters(device):
    linear = torch.nn.Linear(64, 8, device=device)
    with torch.enable_grad():
        with pytest.raises(ValueError, match=r"linear: weight requires a gradient.*weight\.detach"):
            llm_speed.linear(torch.ones(1, 64, device=device), linear.weight)
        detached = llm_speed.linear(torch.ones(1, 64, device=device), linear.weight.detach(), linear.bias.detach())
    with torch.no_grad():
        got = llm_speed.linear(torch.ones(1, 64, device=device), linear.weight, linear.bias)
    with torch.inference_mode():
        assert torch.equal(got, llm_speed.linear(torch.ones(1, 64, device=device), linear.weight, linear.bias))
    assert torch.equal(got, detached)


def test_frameworks_mixed_in_one_call():
    out = torch.empty(6, 64)
    assert llm_speed.rmsnorm(x32, torch.from_numpy(w32), out=out) is out
    assert same_bits(out, torch_rmsnorm(x32))
    jax = pytest.importorskip("jax")
    y = llm_speed.rmsnorm(torch.from_numpy(x32), jax.device_put(w32, jax.devices("cpu")[0]))
    assert isinstance(y, torch.Tensor) and same_bits(y, out)


# ---- DLPack by hand ----------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}  # a capsule keeps the pointer to its name


class HandMade:
    """An array of our own that knows DLPack alone. `deleted` counts the deleter's calls, `exported` the capsules."""

    def __init__(self, values: np.ndarray, versioned: bool = True, **changes: Any) -> None:
        self.values, self.versioned, self.changes = values, versioned, changes
        self.exported = self.deleted = 0
        self.alive: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.changes.get("device", (1, 0))

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError(f"unexpected keyword {next(iter(options))}")  # a producer from before DLPack 1.0
        assert stream is None
        self.exported += 1
        shape = (ctypes.c_int64 * self.values.ndim)(*self.values.shape)
        managed = _ManagedVersioned() if self.versioned else _Managed()
        if self.versioned:
            managed.major, managed.flags = self.changes.get("major", 1), self.changes.get("flags", 0)
        tensor = managed.tensor
        offset = self.changes.get("byte_offset", 0)
        tensor.data, tensor.byte_offset = self.values.ctypes.data - offset, offset
        tensor.device_type, tensor.device_id = self.__dlpack_device__()
        tensor.ndim = self.changes.get("ndim", self.values.ndim)
        tensor.code = self.changes.get("code", {"f": 2, "i": 0}[self.values.dtype.kind])
        tensor.bits = self.changes.get("bits", 8 * self.values.itemsize)
        tensor.lanes = self.changes.get("lanes", 1)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        if self.changes.get("strides"):
            strides = (ctypes.c_int64 * self.values.ndim)(*(s // self.values.itemsize for s in self.values.strides))
            tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
            self.alive.append(strides)

        def delete(_: Any) -> None:
            self.deleted += 1

        managed.deleter = _Deleter(delete) if self.changes.get("deleter", True) else _Deleter()
        self.alive += [shape, managed, managed.deleter]
        return _new_capsule(ctypes.addressof(managed), _NAMES[self.versioned], None)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_by_hand(versioned):
    x, w = HandMade(x32, versioned), HandMade(w32, versioned, byte_offset=128)
    out_values = np.full((6, 80), np.nan, np.float32)
    out = HandMade(out_values[:, :64], versioned, strides=True)
    assert llm_speed.rmsnorm(x, w, out=out) is out
    assert (
        same_bits(np.ascontiguousarray(out_values[:, :64]), torch_rmsnorm(x32)) and np.isnan(out_values[:, 64:]).all()
    )
    for a in (x, w, out):
        assert a.exported == a.deleted == 1
    quiet = HandMade(x32, versioned, deleter=False)  # a NULL deleter is legal
    llm_speed.rmsnorm(quiet, out=out)
    assert quiet.exported == 1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 64},
        {"lanes": 2},
        {"code": 5},
        {"ndim": 6},
        {"device": (7, 0)},
        {"flags": 1},
        {"major": 2},
        {"shape": 63},
    ],
    ids=str,
)
def test_dlpack_deleter_runs_once_on_errors_too(versioned, changes):
    if not versioned and ("flags" in changes or "major" in changes):
        pytest.skip("older capsules have neither version nor flags")
    changes = dict(changes)
    columns = changes.pop("shape", 64)
    x, w = HandMade(x32, versioned), HandMade(w32, versioned)
    bad_values = np.full((6, 64), np.nan, np.float32)
    bad = HandMade(bad_values[:, :columns], versioned, strides=changes.get("ndim") is None, **changes)
    with pytest.raises((ValueError, TypeError), match="rmsnorm: out") as caught:
        llm_speed.rmsnorm(x, w, out=bad)
    assert isinstance(caught.value, llm_speed.Error)
    assert np.isnan(bad_values).all()
    for a in (x, w, bad):
        assert a.exported == a.deleted <= 1


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_odd_input_strides_need_a_known_framework(versioned):
    x = HandMade(np.asfortranarray(x32), versioned, strides=True)
    with pytest.raises((ValueError, TypeError), match="contiguous|stride"):
        llm_speed.rmsnorm(x, out=np.empty((6, 64), np.float32))
    assert x.exported == x.deleted


class Broken:
    """A __dlpack__ that does what `how` says."""

    def __init__(self, how: Callable[[], Any], device: Callable[[], Any] = lambda: (1, 0)) -> None:
        self.how, self.device = how, device

    def __dlpack_device__(self) -> Any:
        return self.device()

    def __dlpack__(self, **_: Any) -> Any:
        return self.how()


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    "broken",
    [
        Broken(lambda: _raise(RuntimeError("out of order"))),
        Broken(lambda: _raise(TypeError("never mind"))),
        Broken(lambda: _raise(BufferError("no view"))),
        Broken(lambda: None),
        Broken(lambda: 17),
        Broken(lambda: _new_capsule(1, b"something else", None)),
        Broken(lambda: None, lambda: _raise(RuntimeError("no device"))),
        Broken(lambda: None, lambda: None),
        Broken(lambda: None, lambda: (1,)),
        Broken(lambda: None, lambda: ("cpu", "zero")),
    ],
)
def test_dlpack_that_is_broken(broken):
    out = np.full((6, 64), np.nan, np.float32)
    for args in ((broken, w32), (x32, broken)):
        with pytest.raises((ValueError, TypeError), match="rmsnorm: (x|weight)") as caught:
            llm_speed.rmsnorm(*args, out=out)
        assert isinstance(caught.value, llm_speed.Error)
        assert np.isnan(out).all()
    llm_speed.rmsnorm(x32, w32, out=out)
    assert np.isfinite(out).all()


def test_a_capsule_that_was_used_is_refused():
    used = HandMade(x32)
    capsule = used.__dlpack__(max_version=(1, 0))
    out = np.full((6, 64), np.nan, np.float32)
    llm_speed.rmsnorm(Broken(lambda: capsule), out=out)
    assert used.deleted == 1
    with pytest.raises(TypeError, match="rmsnorm: x"):
        llm_speed.rmsnorm(Broken(lambda: capsule), out=out)
    assert used.deleted == 1


# ---- What calls leave behind -------------------------------------------------------------------------


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def assert_leaves_nothing(call: Callable[[], Any], times: int, objects: list[Any], slack: int = 2 << 20) -> None:
    """`times` calls after a warm-up leave reference counts where they were, and memory within `slack`."""
    for _ in range(times // 10):
        call()
    counts, memory = [sys.getrefcount(o) for o in objects], resident_bytes()
    for _ in range(times):
        call()
    assert [sys.getrefcount(o) for o in objects] == counts
    assert resident_bytes() - memory < slack


def kinds(device: str) -> list[tuple[str, Any, Any, Any]]:
    """(kind, x, weight, out) of small arrays."""
    x, w = as_torch(x32[:2]).to(device), as_torch(w32).to(device)
    found = [("torch", x, w, torch.empty_like(x))]
    if device == "cpu":
        bf16 = ml_dtypes.bfloat16
        found += [
            ("numpy", x32[:2].copy(), w32.copy(), np.empty((2, 64), np.float32)),
            ("ml_dtypes", x32[:2].astype(bf16), w32.astype(bf16), np.empty((2, 64), bf16)),
        ]
    return found


def test_no_leak(device):
    for kind, x, w, out in kinds(device):
        objects = [x, w, out, None, True, "rmsnorm"]
        assert_leaves_nothing(
            lambda: llm_speed.rmsnorm(x, w, out=out), 100_000 if kind != "ml_dtypes" else 20_000, objects[:3]
        )
        assert_leaves_nothing(lambda: llm_speed.rmsnorm(x, w), 10_000, objects[:3])
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        for _ in range(10_000):
            llm_speed.rmsnorm(x, w)
        assert torch.cuda.memory_allocated() == before


def test_no_leak_of_copied_inputs(device):
    for kind, x, w, out in kinds(device):
        odd = x.T.copy().T if kind != "torch" else x.T.contiguous().T
        assert_leaves_nothing(lambda: llm_speed.rmsnorm(odd, w, out=out), 10_000, [odd, w, out])


def test_no_leak_by_dlpack():
    class Exporter:  # no exchange table, no buffer: __dlpack__ alone
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

    tensors = [as_torch(x32), as_torch(w32), torch.empty(6, 64)]
    x, w, out = map(Exporter, tensors)
    assert_leaves_nothing(lambda: llm_speed.rmsnorm(x, w, out=out), 10_000, [x, w, out, *tensors])
    assert same_bits(tensors[2], torch_rmsnorm(x32))


def test_no_leak_by_failing_calls(device):
    for kind, x, w, out in kinds(device):
        read_only = np.zeros((2, 64), np.float32)
        read_only.setflags(write=False)
        bad_calls: list[Callable[[], Any]] = [
            lambda: llm_speed.rmsnorm(x, w[:63], out=out),
            lambda: llm_speed.rmsnorm(x, w, out=out, variant="none such"),
            lambda: llm_speed.rmsnorm(x, "weight", out=out),
            lambda: llm_speed.rmsnorm(x, w, "eps", out=out),
            lambda: llm_speed.rmsnorm(x, w, out=read_only),
            lambda: llm_speed.rmsnorm(x, w, out=x[:1]),
        ]

        def fail_all() -> None:
            for call in bad_calls:
                try:
                    call()
                except llm_speed.Error:
                    continue
                raise AssertionError("a bad call went through")

        assert_leaves_nothing(fail_all, 10_000 // len(bad_calls), [x, w, out, read_only])


# ---- Threads, fork -----------------------------------------------------------------------------------


def test_threads(device):
    """Eight threads with data of their own get what one thread gets, bit for bit."""
    count, rounds = 8, 60
    inputs = [torch.randn(16 + i, 256, device=device) for i in range(count)]
    weights = [torch.randn(300, 256, device=device) for _ in range(count)]

    def work(i: int) -> torch.Tensor:
        y = llm_speed.rmsnorm(inputs[i])
        y = llm_speed.linear(y, weights[i])
        return llm_speed.gated_act(y[:, :150], y[:, 150:])

    wanted = [work(i) for i in range(count)]
    failures: list[Any] = []

    def run(i: int) -> None:
        try:
            for _ in range(rounds):
                if not torch.equal(work(i), wanted[i]):
                    failures.append(i)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_thread_count_changes_no_bits():
    before = llm_speed.get_num_threads()
    x, w = torch.randn(33, 512), torch.randn(700, 512)
    results = []
    try:
        for threads in (1, 2, 5):
            llm_speed.set_num_threads(threads)
            assert llm_speed.get_num_threads() == threads
            results.append(llm_speed.linear(x, w))
        with pytest.raises(ValueError):
            llm_speed.set_num_threads(-1)
        assert llm_speed.get_num_threads() == 5
    finally:
        llm_speed.set_num_threads(before)
    assert all(torch.equal(results[0], r) for r in results)


FORK = """
import multiprocessing, numpy as np, sys, llm_speed
llm_speed.set_num_threads(4)
x, w = np.random.rand(64, 512).astype(np.float32), np.random.rand(900, 512).astype(np.float32)
wanted = llm_speed.linear(x, w)  # the pool has run
def child(connection):
    connection.send(np.array_equal(llm_speed.linear(x, w), wanted) and llm_speed.get_num_threads() == 4)
context = multiprocessing.get_context("fork")
for _ in range(3):
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    ok = ours.poll(30) and ours.recv()
    process.join(30)
    assert ok and process.exitcode == 0
    assert np.array_equal(llm_speed.linear(x, w), wanted)
"""


def test_fork():
    """A child that was forked after the pool had run makes a pool of its own; the parent's works on."""
    done = subprocess.run([sys.executable, "-c", FORK], env=child_environment(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()


def child_environment(**changes: Optional[str]) -> dict[str, str]:
    """The environment for a Python that finds llm_speed where this one did."""
    path = [os.path.dirname(os.path.dirname(llm_speed.__file__)), os.environ.get("PYTHONPATH", "")]
    merged: dict[str, Optional[str]] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **changes}
    return {name: value for name, value in merged.items() if value is not None}
