"""Reading safetensors files that hold the types of a bundle; any other file is refused.

The native reader (runtime/src/bundle/safetensors.cpp) makes the same checks. The safetensors
package is not used to read, because its versions differ in the files that they accept.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.documents import parse_json
from anoco_edge.errors import BundleError

Tensors = dict[str, NDArray[Any]]

MOST_HEADER = 1 << 20  # bytes; the headers of a bundle have a few hundred
_TYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
}
_MOST_AXES = 8
_LENGTH = 8  # bytes at the beginning that hold the length of the header


def read_tensors(data: bytes, what: str) -> Tensors:
    """Read the tensors of a safetensors file, by their names. They share the memory of `data`.

    `what` begins the text of an error, such as "bank-1.safetensors is not a reference bank".

    >>> from safetensors.numpy import save
    >>> read_tensors(save({"a": np.arange(3, dtype=np.int16)}), "a.safetensors is broken")
    {'a': array([0, 1, 2], dtype=int16)}
    >>> read_tensors(b"pickle", "a.safetensors is broken")
    Traceback (most recent call last):
    anoco_edge.errors.BundleError: a.safetensors is broken: it ends before its header; the bundle...
    """
    places = tensor_places(io.BytesIO(data), len(data), what)
    return {
        name: np.frombuffer(data, place.dtype, place.count, place.start).reshape(place.shape)
        for name, place in places.items()
    }


@dataclass(frozen=True)
class TensorPlace:
    """The type and shape of one tensor, and where it begins in its file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def count(self) -> int:
        """How many numbers the tensor holds."""
        return math.prod(self.shape)

    def read(self, stream: BinaryIO) -> NDArray[Any]:
        """Read this tensor alone from its file."""
        stream.seek(self.start)
        data = stream.read(self.count * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype, self.count).reshape(self.shape)


def tensor_places(stream: BinaryIO, size: int, what: str) -> dict[str, TensorPlace]:
    """Read and check the header of a safetensors file of this size, and nothing behind it."""
    if size < _LENGTH:
        raise BundleError(f"{what}: it ends before its header")
    length = int.from_bytes(stream.read(_LENGTH), "little")
    if length > MOST_HEADER or length > size - _LENGTH:
        raise BundleError(f"{what}: its header is too large")
    start = _LENGTH + length
    header = parse_json(stream.read(length), f"{what}: its header")
    if not isinstance(header, dict):
        raise BundleError(f"{what}: its header is not an object")
    _check_metadata(header.pop("__metadata__", {}), what)
    tensors, places = {}, []
    for name, about in header.items():
        whose = f"{what}: tensor {name!r}"
        dtype, shape, begin, end = _layout(about, whose)
        if end > size - start:
            raise BundleError(f"{whose} lies outside the file")
        if math.prod(shape) * dtype.itemsize != end - begin:
            raise BundleError(f"{whose} has another size than its shape asks for")
        if (start + begin) % dtype.itemsize:
            raise BundleError(f"{whose} is not aligned")
        tensors[name] = TensorPlace(dtype, tuple(shape), start + begin)
        places.append((begin, end))
    _check_gaps(places, size - start, what)
    return tensors


def _check_metadata(metadata: object, what: str) -> None:
    if not isinstance(metadata, dict):
        raise BundleError(f"{what}: its metadata is not an object")
    if not all(isinstance(text, str) for text in metadata.values()):
        raise BundleError(f"{what}: its metadata holds more than texts")


def _layout(about: object, whose: str) -> tuple[np.dtype[Any], list[int], int, int]:
    """Read the type and the shape of a tensor, and where its numbers begin and end."""
    if not isinstance(about, dict) or set(about) != {"dtype", "shape", "data_offsets"}:
        raise BundleError(f"{whose} is not described by dtype, shape and data_offsets")
    name = about["dtype"]
    if not isinstance(name, str) or name not in _TYPES:
        raise BundleError(f"{whose} has a dtype that is not read here: {name!r}")
    shape = _sizes(about["shape"], f"{whose} has a shape")
    # A length of zero counts as one here: NumPy multiplies the others all the same.
    room = math.prod(max(1, side) for side in shape) * _TYPES[name].itemsize
    if len(shape) > _MOST_AXES or room >= 2**63:
        raise BundleError(f"{whose} has a shape that is not read here")
    offsets = _sizes(about["data_offsets"], f"{whose} has data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BundleError(f"{whose} lies outside the file")
    return _TYPES[name], shape, offsets[0], offsets[1]


def _sizes(values: object, whose: str) -> list[int]:
    if not isinstance(values, list):
        raise BundleError(f"{whose} that is not a list")
    if not all(type(value) is int and value >= 0 for value in values):
        raise BundleError(f"{whose} that holds no sizes")
    return values


def _check_gaps(places: list[tuple[int, int]], size: int, what: str) -> None:
    reached = 0
    for begin, end in sorted(places):
        if begin != reached:
            raise BundleError(f"{what}: its tensors overlap or leave gaps")
        reached = end
    if reached != size:
        raise BundleError(f"{what}: something follows its tensors")
