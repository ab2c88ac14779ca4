"""Arrays in a GPU's memory, whichever library made them: their address, shape and type.

cupy, torch, numba and pycuda describe their arrays by `__cuda_array_interface__`, and so do we.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, TypeGuard

import numpy as np

from anoco_edge.errors import UsageError

_TYPES = ("float32", "float16", "uint8")


class CudaArrayInterface(TypedDict, total=False):
    """The CUDA array interface, version 3; `strides` is None for an array without gaps."""

    version: int
    shape: tuple[int, ...]
    typestr: str
    data: tuple[int, bool]
    strides: tuple[int, ...] | None
    stream: int | None
    mask: object


@dataclass(frozen=True)
class DeviceArray:
    """A contiguous array on a GPU; `owner` is whatever must live as long as its memory.

    `stream` is the stream in which work that still fills the array is queued, numbered as in the
    interface (1 is the default stream). None means that the array is complete.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int | None = None
    owner: object = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> CudaArrayInterface:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "strides": None,
            "stream": self.stream,
        }

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> DeviceArray:
        """Take one entry along the first axis, without copying it.

        >>> DeviceArray(4096, (2, 8, 4), np.dtype(np.float32))[1].pointer
        4224
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        one = DeviceArray(self.pointer, self.shape[1:], self.dtype, self.stream, self.owner)
        return DeviceArray(
            self.pointer + number * one.nbytes, one.shape, one.dtype, one.stream, one.owner
        )


class OnDevice(Protocol):
    """An array of any library that describes itself by this interface."""

    @property
    def __cuda_array_interface__(self) -> CudaArrayInterface: ...


def on_device(value: object) -> TypeGuard[OnDevice]:
    """Whether this array lies in a GPU's memory.

    >>> on_device(np.zeros(3))
    False
    """
    return hasattr(value, "__cuda_array_interface__")


def device_array(value: OnDevice) -> DeviceArray:
    """Read what an array of another library says of itself; raises for one that cannot be used.

    >>> device_array(DeviceArray(4096, (2, 8), np.dtype(np.float16))).dtype
    dtype('float16')
    """
    if isinstance(value, DeviceArray):
        return value
    described = value.__cuda_array_interface__
    shape, dtype = tuple(int(n) for n in described["shape"]), np.dtype(described["typestr"])
    pointer, _ = described["data"]
    if dtype.name not in _TYPES or not dtype.isnative:
        raise UsageError(
            f"the array on the GPU is {dtype}", hint="make it float32 or float16 there"
        )
    if described.get("mask") is not None or not _contiguous(described.get("strides"), shape, dtype):
        raise UsageError(
            f"the array of shape {shape} on the GPU has gaps",
            hint="make it contiguous there: .contiguous() in torch, ascontiguousarray in cupy",
        )
    if not pointer and 0 not in shape:
        raise UsageError("the array on the GPU has no memory", hint="pass one that is filled")
    return DeviceArray(int(pointer), shape, dtype, described.get("stream"), value)


def _contiguous(
    strides: tuple[int, ...] | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> bool:
    if strides is None or 0 in shape:
        return True
    step = dtype.itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True
