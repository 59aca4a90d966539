"""The exceptions of this package. Each is also the built-in that fits: `except ValueError` works as one expects.

A call that raises has written nothing to its outputs, and later calls work.
"""

from __future__ import annotations


class Error(Exception):
    """Any failure that the C library reports. `status` is its name there, such as "LLS_ERR_SHAPE"."""

    status: str = ""


class ArgumentError(Error, ValueError):
    """A scalar, a shape, a stride, a device or an overlap that the op does not take."""


class DtypeError(Error, TypeError):
    """A dtype that the op does not take."""


class UnsupportedError(Error, NotImplementedError):
    """Valid, but no implementation here takes it; or a pinned variant refuses it."""


class DeviceError(Error, RuntimeError):
    """No such device, no driver, or a CUDA call that failed."""


class OutOfMemoryError(Error, MemoryError):
    """Host, device, workspace or KV pool is too small."""


class FileError(Error, OSError):
    """A file that cannot be read, or a model this library does not know."""


class TextError(Error, ValueError):
    """Text that is not valid UTF-8."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""


# By the hundreds of the status, but where one status of a hundred is of another kind.
_BY_STATUS = {102: DtypeError, 503: TextError, 402: ArgumentError}
_BY_CATEGORY = {
    1: ArgumentError,
    2: UnsupportedError,
    3: DeviceError,
    4: OutOfMemoryError,
    5: FileError,
    6: InternalError,
}


def from_status(status: int, name: str, message: str) -> Error:
    """The exception for a C status with its message; the binding raises it."""
    kind = _BY_STATUS.get(status) or _BY_CATEGORY.get(status // 100, InternalError)
    error = kind(message or name)
    error.status = name
    return error
