"""Hands the weights of a graph to TensorRT's parser where they lie in the file, without a copy.

`parse_from_file` reads the whole file and copies the weights out of it, so that the graph takes
twice its size for a moment, and once its size while the plan is built. Here the file is mapped: the
system may drop its pages and read them again. The parser gets the graph without its weights, which
are taken out by protobuf's own encoding, because a device has no onnx package.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_LEAST = 1024  # bytes; smaller weights are shapes, which the parser reads, and stay in the graph
_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_NAME, _RAW, _ENTRY, _LOCATION = 8, 9, 13, 14  # fields of TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1

Place = tuple[str, int, int]
"""The file that holds a weight ("" is that of the graph), and the offset and length in it."""
_Field = tuple[int, int, int, int]
"""The number of a field, where it starts, and where its value starts and ends."""


class MappedWeights:
    """A graph for a parser that takes weights one by one; it must outlive the network."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, Any] = {}

    def parse(self, parser: Any) -> bool:
        """Parse the graph; False if the parser refuses it, which then has an error to tell."""
        try:
            light, places = split_weights(self._map(""))
            weights = {name: self._slice(*place) for name, place in places.items()}
        except (KeyError, OSError, ValueError):
            return bool(parser.parse_from_file(str(self._path)))  # it says what is wrong
        if not parser.load_model_proto(light, str(self._path)):
            return False
        for name, weight in weights.items():
            if not parser.load_initializer(name, weight.ctypes.data, weight.nbytes):
                return False
        return bool(parser.parse_model_proto())

    def _slice(self, file: str, offset: int, length: int) -> Any:
        weight = self._map(file)[offset : offset + length]
        if offset < 0 or weight.nbytes != length:
            raise ValueError("a weight reaches beyond the end of its file")
        return weight

    def _map(self, file: str) -> Any:
        if file not in self._files:
            path = self._path.with_name(file) if file else self._path
            with path.open("rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._files[file] = np.frombuffer(mapped, np.uint8)
        return self._files[file]


def split_weights(model: Any) -> tuple[bytes, dict[str, Place]]:
    """Return a serialized model without its large weights, and where each of them lies.

    Raise ValueError if the content is not that of a model.
    """
    view, places = memoryview(model), dict[str, Place]()
    parts: list[bytes] = []
    for number, start, value, end in _fields(view, 0, len(view)):
        if number != _GRAPH:
            parts.append(bytes(view[start:end]))
            continue
        inner = []
        for part, begin, content, stop in _fields(view, value, end):
            light = _without_data(view, content, stop, places) if part == _INITIALIZER else None
            inner.append(bytes(view[begin:stop]) if light is None else light)
        parts.append(_field(_GRAPH, b"".join(inner)))
    return b"".join(parts), places


def _without_data(view: memoryview, start: int, end: int, places: dict[str, Place]) -> bytes | None:
    """Return an initializer whose data are said to be in a file; None if it is to stay as it is."""
    kept, entries, name, raw = [], dict[str, str](), "", (0, 0)
    for number, begin, value, stop in _fields(view, start, end):
        if number == _RAW:
            raw = (value, stop - value)
            continue
        kept.append(bytes(view[begin:stop]))
        if number == _NAME:
            name = str(view[value:stop], "utf-8")
        elif number == _ENTRY:
            pair = {n: str(view[v:e], "utf-8") for n, _, v, e in _fields(view, value, stop)}
            entries[pair.get(1, "")] = pair.get(2, "")
    if entries:
        places[name] = (entries["location"], int(entries.get("offset", 0)), int(entries["length"]))
        return None
    if raw[1] < _LEAST:
        return None
    places[name] = ("", *raw)
    said = {"location": "weights", "offset": "0", "length": str(raw[1])}
    for key, text in said.items():
        kept.append(_field(_ENTRY, _field(1, key.encode()) + _field(2, text.encode())))
    kept.append(_varint(_LOCATION << 3) + _varint(_EXTERNAL))
    return _field(_INITIALIZER, b"".join(kept))


def _fields(view: memoryview, start: int, end: int) -> Iterator[_Field]:
    at = start
    while at < end:
        tag, value = _read_varint(view, at, end)
        wire, stop = tag & 7, value
        if wire == _VARINT:
            _, stop = _read_varint(view, value, end)
        elif wire == _BYTES:
            length, value = _read_varint(view, value, end)
            stop = value + length
        elif wire in (_FIXED64, _FIXED32):
            stop = value + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"a field is of kind {wire}")
        if stop > end:
            raise ValueError("a field reaches beyond what it is in")
        yield tag >> 3, at, value, stop
        at = stop


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("it ends in the middle of a number")


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content
