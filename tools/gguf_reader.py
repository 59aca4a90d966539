"""Reads GGUF files with NumPy alone: metadata, tensor infos, and dequantisation in float64.

Independent of the C reader on purpose: the tests compare the two. Trusts its input; the C reader does not.

    python3 gguf_reader.py model.gguf        lists keys and tensors
"""

import mmap
import struct
import sys
from typing import NamedTuple

import numpy as np

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32

# struct format and size of the scalar value types, by their number in the file
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class TensorType(NamedTuple):
    number: int  # in the file
    block: int  # weights a block
    nbytes: int  # bytes a block


TENSOR_TYPES = {
    "F32": TensorType(0, 1, 4),
    "F16": TensorType(1, 1, 2),
    "BF16": TensorType(30, 1, 2),
    "Q4_0": TensorType(2, 32, 18),
    "Q4_1": TensorType(3, 32, 20),
    "Q5_0": TensorType(6, 32, 22),
    "Q5_1": TensorType(7, 32, 24),
    "Q8_0": TensorType(8, 32, 34),
    "Q4_K": TensorType(12, 256, 144),
    "Q5_K": TensorType(13, 256, 176),
    "Q6_K": TensorType(14, 256, 210),
}
TYPE_NAMES = {t.number: name for name, t in TENSOR_TYPES.items()}


class Tensor(NamedTuple):
    type: str  # key of TENSOR_TYPES
    shape: tuple  # outermost first
    raw: np.ndarray  # uint8

    def dequantize(self):
        """The weights in float64, exactly as the file defines them."""
        return dequantize(self.type, self.raw).reshape(self.shape)


class GGUF:
    """`kv`: key -> value (bool, int, float, str, list, or an array of numbers); `tensors`: name -> Tensor."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pos = 0
        if self._take(4) != MAGIC:
            raise ValueError(f"{path}: not a GGUF file")
        self.version = self._scalar("<I")
        if self.version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {self.version}")
        num_tensors, num_kvs = self._scalar("<Q"), self._scalar("<Q")
        self.kv = {}
        for _ in range(num_kvs):
            key = self._string()
            self.kv[key] = self._value(self._scalar("<I"))
        infos = [self._tensor_info() for _ in range(num_tensors)]
        alignment = self.kv.get("general.alignment", DEFAULT_ALIGNMENT)
        start = -(-self._pos // alignment) * alignment
        data = np.frombuffer(self._bytes, np.uint8)
        self.tensors = {}
        for name, type_name, shape, offset in infos:
            kind = TENSOR_TYPES[type_name]
            nbytes = int(np.prod(shape, dtype=np.int64)) // kind.block * kind.nbytes
            self.tensors[name] = Tensor(type_name, shape, data[start + offset : start + offset + nbytes])

    def _take(self, n):
        self._pos += n
        return self._bytes[self._pos - n : self._pos]

    def _scalar(self, fmt):
        return struct.unpack(fmt, self._take(struct.calcsize(fmt)))[0]

    def _string(self):
        return self._take(self._scalar("<Q")).decode("utf-8", "surrogateescape")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(SCALARS[kind])
        element, count = self._scalar("<I"), self._scalar("<Q")
        if element in (STRING, ARRAY):
            return [self._value(element) for _ in range(count)]
        dtype = np.dtype(SCALARS[element])
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)

    def _tensor_info(self):
        name = self._string()
        ndim = self._scalar("<I")
        shape = tuple(self._scalar("<Q") for _ in range(ndim))[::-1]
        return name, TYPE_NAMES[self._scalar("<I")], shape, self._scalar("<Q")


# ---- Dequantisation. Each function takes blocks [n, bytes a block] and gives weights [n, weights a block]. ----


def half(blocks, at):
    """The fp16 at byte `at` of each block, as a column."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float64)


def low_then_high(nibbles):
    """[..., m] bytes -> [..., 2m] codes: all low halves, then all high ones."""
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)


def fifth_bits(blocks, at):
    """The 32 high bits of the 5-bit formats, as 0 or 16, in the order of the weights."""
    return np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little") << 4


def q4_0(b):
    return half(b, 0) * (low_then_high(b[:, 2:]).astype(np.float64) - 8)


def q4_1(b):
    return half(b, 0) * low_then_high(b[:, 4:]) + half(b, 2)


def q5_0(b):
    return half(b, 0) * ((low_then_high(b[:, 6:]) | fifth_bits(b, 2)).astype(np.float64) - 16)


def q5_1(b):
    return half(b, 0) * (low_then_high(b[:, 8:]) | fifth_bits(b, 4)) + half(b, 2)


def q8_0(b):
    return half(b, 0) * b[:, 2:].view(np.int8)


def unpack_k_scales(s):
    """12 bytes -> the 6-bit scales and minima of 8 sub-blocks. The last four of each keep their top two bits in the
    top bits of the first eight bytes."""
    head, tail, mixed = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scales = np.concatenate([head & 63, (mixed & 15) | (head >> 6 << 4)], axis=1)
    minima = np.concatenate([tail & 63, (mixed >> 4) | (tail >> 6 << 4)], axis=1)
    return scales, minima


def k_affine(b, codes):
    """codes [n, 8, 32] -> weights, for the formats with a scale and a minimum per sub-block."""
    scales, minima = unpack_k_scales(b[:, 4:16])
    d, dmin = half(b, 0)[:, :, None], half(b, 2)[:, :, None]
    return (d * scales[:, :, None] * codes - dmin * minima[:, :, None]).reshape(len(b), 256)


def q4_k(b):
    return k_affine(b, low_then_high(b[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def q5_k(b):
    high = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1  # bit j belongs to sub-block j
    return k_affine(b, low_then_high(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | high << 4)


def q6_k(b):
    low = low_then_high(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1) & 3
    codes = (low | high << 4).reshape(-1, 16, 16).astype(np.float64) - 32
    scales = b[:, 192:208].view(np.int8).astype(np.float64)
    return (half(b, 208)[:, :, None] * scales[:, :, None] * codes).reshape(len(b), 256)


BLOCK_FORMATS = {"Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q4_K": q4_k, "Q5_K": q5_k,
                 "Q6_K": q6_k}


def dequantize(type_name, raw):
    """Raw bytes (uint8 array) of a tensor -> flat float64 array."""
    if type_name == "F32":
        return raw.view("<f4").astype(np.float64)
    if type_name == "F16":
        return raw.view("<f2").astype(np.float64)
    if type_name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    blocks = raw.reshape(-1, TENSOR_TYPES[type_name].nbytes)
    return BLOCK_FORMATS[type_name](blocks).reshape(-1)


def main(path):
    model = GGUF(path)
    for key, value in model.kv.items():
        text = repr(value) if np.ndim(value) == 0 else f"{len(value)} x {value[0]!r} ..." if len(value) else "[]"
        print(f"{key} = {text[:100]}")
    for name, tensor in model.tensors.items():
        print(f"{name} {tensor.type} {list(tensor.shape)}")


if __name__ == "__main__":
    main(sys.argv[1])
