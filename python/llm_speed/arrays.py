"""What the ops ask of an array framework: new outputs, contiguous copies, the current stream.

Nothing here imports a framework that the caller has not imported: an array's own module is at hand when the array is.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Sequence

from .errors import DtypeError

# This package's names for dtypes, and NumPy's and torch's.
_NUMPY_DTYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
}
_NAMES = {long: short for short, long in _NUMPY_DTYPES.items()}

# The module torch, which llm_speed.torch_ops puts here. Tensors are told by it and not looked up by type in `_known`,
# since torch.compile would trace again whenever that grows.
_torch: Any = None


class _Torch:
    @staticmethod
    def _dtype(name: Optional[str]) -> Any:
        return None if name is None else getattr(_torch, _NUMPY_DTYPES[name])

    @classmethod
    def empty(cls, like: Any, shape: Sequence[int], dtype: Optional[str]) -> Any:
        return like.new_empty(shape, dtype=cls._dtype(dtype))

    @staticmethod
    def empty_like(x: Any) -> Any:
        return _torch.empty_like(x, memory_format=_torch.contiguous_format)

    @classmethod
    def full(cls, like: Any, shape: Sequence[int], value: Any, dtype: str) -> Any:
        return like.new_full(shape, value, dtype=cls._dtype(dtype))

    @staticmethod
    def contiguous(x: Any) -> Any:
        return x.contiguous()

    @staticmethod
    def broadcast(x: Any, shape: Sequence[int]) -> Any:
        return _torch.broadcast_to(x, shape)

    @staticmethod
    def current_stream(x: Any, device_index: int) -> int:
        return _torch.cuda.current_stream(device_index).cuda_stream


class _NumPy:
    @staticmethod
    def _dtype(name: Optional[str]) -> Any:
        if name in ("bf16", "f8_e4m3", "f8_e5m2"):
            import ml_dtypes

            return getattr(ml_dtypes, _NUMPY_DTYPES[name])
        return None if name is None else _NUMPY_DTYPES[name]

    @classmethod
    def empty(cls, like: Any, shape: Sequence[int], dtype: Optional[str]) -> Any:
        return sys.modules["numpy"].empty(shape, cls._dtype(dtype) or like.dtype)

    @classmethod
    def full(cls, like: Any, shape: Sequence[int], value: Any, dtype: str) -> Any:
        return sys.modules["numpy"].full(shape, value, cls._dtype(dtype))

    @staticmethod
    def contiguous(x: Any) -> Any:
        return sys.modules["numpy"].ascontiguousarray(x)

    @staticmethod
    def broadcast(x: Any, shape: Sequence[int]) -> Any:
        return sys.modules["numpy"].broadcast_to(x, shape)

    @staticmethod
    def current_stream(x: Any, device_index: int) -> int:
        return 0


class _CuPy:
    @classmethod
    def empty(cls, like: Any, shape: Sequence[int], dtype: Optional[str]) -> Any:
        with like.device:
            return sys.modules["cupy"].empty(shape, _NumPy._dtype(dtype) or like.dtype)

    @classmethod
    def full(cls, like: Any, shape: Sequence[int], value: Any, dtype: str) -> Any:
        with like.device:
            return sys.modules["cupy"].full(shape, value, _NumPy._dtype(dtype))

    @staticmethod
    def contiguous(x: Any) -> Any:
        return sys.modules["cupy"].ascontiguousarray(x)

    @staticmethod
    def broadcast(x: Any, shape: Sequence[int]) -> Any:
        return sys.modules["cupy"].broadcast_to(x, shape)

    @staticmethod
    def current_stream(x: Any, device_index: int) -> int:
        return sys.modules["cupy"].cuda.get_current_stream().ptr


class _Jax:
    """JAX arrays are immutable; an op writes into a fresh one that nobody else has seen yet."""

    @classmethod
    def empty(cls, like: Any, shape: Sequence[int], dtype: Optional[str]) -> Any:
        return cls.full(like, shape, 0, dtype)

    @staticmethod
    def full(like: Any, shape: Sequence[int], value: Any, dtype: Optional[str]) -> Any:
        jax = sys.modules["jax"]
        wanted = _NumPy._dtype(dtype) or like.dtype
        with jax.default_device(next(iter(like.devices()))):
            made = jax.numpy.full(tuple(shape), value, wanted).block_until_ready()
        if made.dtype != wanted:  # 64-bit types are off in JAX by default
            raise DtypeError(f"JAX makes {made.dtype} in place of {wanted}: enable jax_enable_x64, or pass out=")
        return made

    @staticmethod
    def contiguous(x: Any) -> Any:
        return x

    @staticmethod
    def broadcast(x: Any, shape: Sequence[int]) -> Any:
        return sys.modules["jax"].numpy.broadcast_to(x, shape)

    @staticmethod
    def current_stream(x: Any, device_index: int) -> int:
        return 0


# Module, its array class, the functions.
_FRAMEWORKS: tuple[tuple[str, str, Any], ...] = (
    ("numpy", "ndarray", _NumPy),
    ("cupy", "ndarray", _CuPy),
    ("jax", "Array", _Jax),
)
_known: dict[type, Any] = {}


def framework(x: Any) -> Any:
    """The functions for this array's framework. TypeError for one that is not known here."""
    if _torch is not None and isinstance(x, _torch.Tensor):
        return _Torch
    found = _known.get(type(x))
    if found is None:
        for module, name, functions in _FRAMEWORKS:
            loaded = sys.modules.get(module)
            if loaded is not None and isinstance(x, getattr(loaded, name)):
                found = _known[type(x)] = functions
                break
        else:
            raise DtypeError(
                f"{type(x).__name__} is not an array of torch, NumPy, CuPy or JAX: "
                "others are taken where the outputs are given (out=) and every input is contiguous"
            )
    return found


def empty(like: Any, shape: Sequence[int], dtype: Optional[str] = None) -> Any:
    """A new array where `like` lives; dtype "f32", "i32", ..., None for like's own."""
    return framework(like).empty(like, shape, dtype)


def empty_like(x: Any) -> Any:
    """A new contiguous array of x's shape and dtype."""
    if _torch is not None and isinstance(x, _torch.Tensor):  # the hot path
        return _Torch.empty_like(x)
    return framework(x).empty(x, x.shape, None)


def full(like: Any, shape: Sequence[int], value: Any, dtype: str) -> Any:
    """The same, with one value everywhere."""
    return framework(like).full(like, shape, value, dtype)


def contiguous(x: Any) -> Any:
    """x, or a copy of it without gaps."""
    return framework(x).contiguous(x)


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    """x repeated to a larger shape, without a copy where the framework has strides."""
    return framework(x).broadcast(x, shape)


def current_stream(x: Any, device_index: int) -> int:
    """Handle of the CUDA stream that x's framework works on now; 0 is the legacy default stream."""
    try:
        find: Callable[[Any, int], int] = framework(x).current_stream
    except TypeError:
        return 0
    return find(x, device_index)


def dtype_name(x: Any) -> str:
    """ "f32" for float32, and so on; TypeError for a dtype that no op takes."""
    long = str(x.dtype).rpartition(".")[2]
    short = _NAMES.get(long)
    if short is None:
        raise DtypeError(f"dtype {long} is one that no op takes")
    return short
