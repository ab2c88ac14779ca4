"""Checking an ONNX graph before an engine opens it, without the onnx package.

An engine opens every file that a graph names: onnxruntime looks for external weights from the
working directory, openvino at any absolute path. So a graph of a bundle must take its weights from
itself and from files that the manifest lists and hashes. It has only standard operators, no graphs
inside nodes (Loop, If, Scan) and no functions, and it declares the input and the output that the
manifest states. `runtime/src/bundle/onnx_graph.cpp` makes the same checks.

A graph is a protobuf message, which is walked field by field. Weights are skipped and not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from anoco_edge.errors import BundleError
from anoco_edge.images.contract import InputContract

MOST_FIELDS = 1_000_000
"""The most fields that are walked. Exported graphs have fewer than 100,000; a file made of tiny
fields would take hours."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_TEXT = 4096  # bytes of a name that is read
_QUOTED_TEXT = 80  # characters of a name in an error
_WINDOW = 1 << 16  # bytes of a large file in memory at a time
_ORT_FORMAT = b"ORTM"  # bytes 4 to 8 of a file in ONNX Runtime's own format

_FLOAT, _UINT8 = 1, 2
# Bytes of a number, by TensorProto.DataType; strings and packed types cannot be external.
_NUMBER_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8}
_NUMBER_BYTES |= {14: 8, 15: 16, 16: 2, 17: 1, 18: 1, 19: 1, 20: 1}
_GRAPH_TYPES = (5, 10)  # AttributeProto.GRAPH, GRAPHS
_LAST_TYPE = 14  # AttributeProto.TYPE_PROTOS
_CONTROL_FLOW = (b"If", b"Loop", b"Scan")
_STANDARD = (b"", b"ai.onnx")


class _Bytes(Protocol):
    """The content of a file, in memory or on disk."""

    def __len__(self) -> int: ...

    def byte(self, at: int) -> int: ...

    def text(self, start: int, end: int) -> bytes: ...


@dataclass(frozen=True)
class _Message:
    """The fields of a message that are checked: wire types by number, and which must not repeat."""

    title: str
    wires: Mapping[int, int]
    once: frozenset[int]


def _message(
    title: str, once: Mapping[int, int], many: Mapping[int, int] | None = None
) -> _Message:
    return _Message(title, {**once, **(many or {})}, frozenset(once))


_MODEL = _message(
    "the model",
    {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES},
    {8: _BYTES, 14: _BYTES, 20: _BYTES, 25: _BYTES},
)
_OPSET = _message("an operator set", {1: _BYTES, 2: _VARINT})
_GRAPH = _message(
    "the graph", {2: _BYTES}, {1: _BYTES, 5: _BYTES, 11: _BYTES, 12: _BYTES, 15: _BYTES}
)
_NODE = _message("a node", {3: _BYTES, 4: _BYTES, 7: _BYTES}, {1: _BYTES, 2: _BYTES, 5: _BYTES})
_ATTRIBUTE = _message(
    "an attribute",
    {1: _BYTES, 5: _BYTES, 6: _BYTES, 20: _VARINT, 22: _BYTES},
    {10: _BYTES, 11: _BYTES, 23: _BYTES},
)
_SPARSE = _message("a sparse tensor", {1: _BYTES, 2: _BYTES})
_TENSOR = _message(
    "a tensor", {2: _VARINT, 8: _BYTES, 9: _BYTES, 14: _VARINT}, {1: _VARINT, 13: _BYTES}
)
_ENTRY = _message("an entry of external data", {1: _BYTES, 2: _BYTES})
_VALUE = _message("an input or output", {1: _BYTES, 2: _BYTES})
_TYPE = _message("a type", {1: _BYTES})
_TENSOR_TYPE = _message("a tensor's type", {1: _VARINT, 2: _BYTES})
_SHAPE = _message("a shape", {}, {1: _BYTES})
_DIMENSION = _message("a dimension", {1: _VARINT, 2: _BYTES})


def check_graph(
    graph: bytes | Path, name: str, contract: InputContract, data_files: Mapping[str, int]
) -> None:
    """Raise BundleError unless an engine may open the graph.

    `data_files` holds the sizes of the files with external weights, by their names.

    >>> contract = InputContract(width=32, height=16, stride=16, rows=1, cols=2, dim=8)
    >>> check_graph(b"", "backbone.onnx", contract, {})
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: backbone.onnx is not an ONNX graph, or only a part of one: ...
    """
    if isinstance(graph, bytes):
        _Walk(_InMemory(graph), name, contract, data_files).model()
        return
    try:
        with graph.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            _Walk(_OnDisk(stream.fileno(), size), name, contract, data_files).model()
    except OSError as error:
        raise BundleError(
            f"{name} cannot be read: {error.strerror or error}", hint="copy the bundle again"
        ) from None


class _InMemory:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.byte = content.__getitem__

    def __len__(self) -> int:
        return len(self._content)

    def text(self, start: int, end: int) -> bytes:
        return self._content[start:end]


class _OnDisk:
    """A file that is read in pieces, because a graph may be larger than memory. A failing disk
    raises an OSError, where a memory map would end the process."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        return self._size

    def byte(self, at: int) -> int:
        place = at - self._start
        if not 0 <= place < len(self._window):
            self._start, self._window, place = at, self._read(at, _WINDOW), 0
        return self._window[place]

    def text(self, start: int, end: int) -> bytes:
        return self._read(start, end - start)

    def _read(self, at: int, size: int) -> bytes:
        size = min(size, self._size - at)
        found = os.pread(self._descriptor, size, at)
        if len(found) < size:
            raise OSError("it became shorter while it was read")
        return found


class _Walk:
    """One pass over one graph. A field has a number as value, or the range of its bytes."""

    def __init__(
        self, content: _Bytes, name: str, contract: InputContract, data_files: Mapping[str, int]
    ) -> None:
        self._content, self._name = content, name
        self._contract, self._data_files = contract, data_files
        self._left = MOST_FIELDS

    # ---- the messages of onnx.proto, from the outside in

    def model(self) -> None:
        size, graph, opsets = len(self._content), None, 0
        if size >= 8 and self._content.text(4, 8) == _ORT_FORMAT:
            self._broken("it is in ONNX Runtime's own format")
        for number, start, end in self._fields(_MODEL, 0, size):
            if number == 7:
                graph = (start, end)
            elif number == 8:
                self._opset(start, end)
                opsets += 1
            elif number == 20:
                self._refuse("holds instructions for training")
            elif number == 25:
                self._refuse("defines functions")
        if graph is None:
            self._broken("it holds no graph")
        if not opsets:
            self._broken("it names no operator set")
        self._graph(*graph)

    def _opset(self, start: int, end: int) -> None:
        for number, start_, end_ in self._fields(_OPSET, start, end):
            if number == 1:
                self._check_domain(self._text(start_, end_))

    def _graph(self, start: int, end: int) -> None:
        inputs, outputs = [], []
        for number, start_, end_ in self._fields(_GRAPH, start, end):
            if number == 1:
                self._node(start_, end_)
            elif number == 5:
                self._tensor(start_, end_)
            elif number == 11:
                inputs.append((start_, end_))
            elif number == 12:
                outputs.append((start_, end_))
            elif number == 15:
                self._sparse(start_, end_)
        it = self._contract
        taken = _UINT8 if it.pixels == "uint8" else _FLOAT
        self._value(inputs, "pixels", "takes", taken, it.picture_shape)
        self._value(outputs, "features", "gives", _FLOAT, (it.rows * it.cols, it.dim))

    def _node(self, start: int, end: int) -> None:
        for number, start_, end_ in self._fields(_NODE, start, end):
            if number == 4:
                operator = self._text(start_, end_)
                if operator in _CONTROL_FLOW:
                    self._refuse(f"contains the operator {_quoted(operator)}")
            elif number == 7:
                self._check_domain(self._text(start_, end_))
            elif number == 5:
                self._attribute(start_, end_)

    def _attribute(self, start: int, end: int) -> None:
        for number, start_, end_ in self._fields(_ATTRIBUTE, start, end):
            if number in (5, 10):
                self._tensor(start_, end_)
            elif number in (22, 23):
                self._sparse(start_, end_)
            elif number in (6, 11) or (number == 20 and start_ in _GRAPH_TYPES):
                self._refuse("contains a graph inside a node")
            elif number == 20 and start_ > _LAST_TYPE:
                self._broken(f"an attribute has type {start_}")

    def _sparse(self, start: int, end: int) -> None:
        for number, start_, end_ in self._fields(_SPARSE, start, end):
            if number in (1, 2):
                self._tensor(start_, end_)

    def _tensor(self, start: int, end: int) -> None:
        name, kind, location, raw = b"", 0, 0, False
        dims: list[int] = []
        entries: list[tuple[int, int]] = []
        for number, start_, end_ in self._fields(_TENSOR, start, end):
            if number == 1:
                dims.append(start_)
            elif number == 2:
                kind = start_
            elif number == 8:
                name = self._text(start_, end_)
            elif number == 9:
                raw = True
            elif number == 13:
                entries.append((start_, end_))
            elif number == 14:
                location = start_
        if location > 1:
            self._broken(f"tensor {_quoted(name)} has its data at location {location}")
        if location or entries:
            if raw or not location:
                self._broken(f"tensor {_quoted(name)} has its data in two places")
            self._external(name, entries, kind, dims)

    def _external(
        self, name: bytes, entries: list[tuple[int, int]], kind: int, dims: list[int]
    ) -> None:
        found: dict[bytes, bytes] = {}
        whose = f"tensor {_quoted(name)}"
        for start, end in entries:
            key, value = self._entry(start, end)
            if key in found or key not in (b"location", b"offset", b"length", b"checksum"):
                self._broken(f"{whose} has external data with {_quoted(key)}")
            found[key] = value
        place = found.get(b"location", b"")
        size = self._data_files.get(place.decode(errors="replace"))
        if size is None:
            self._refuse(
                f"takes {whose} from {_quoted(place)}, which is not a weights file of the manifest"
            )
        offset = self._whole_number(found.get(b"offset", b"0"), whose)
        length = self._whole_number(found.get(b"length", b""), whose)
        if kind not in _NUMBER_BYTES:
            self._broken(f"{whose} has external data of type {kind}")
        if length != _product(dims, _NUMBER_BYTES[kind]):
            self._broken(f"{whose} has {length} bytes of external data, its shape asks for others")
        if offset + length > size:
            self._refuse(f"takes {whose} from beyond the end of {_quoted(place)}")

    def _entry(self, start: int, end: int) -> tuple[bytes, bytes]:
        key = value = b""
        for number, start_, end_ in self._fields(_ENTRY, start, end):
            if number == 1:
                key = self._text(start_, end_)
            elif number == 2:
                value = self._text(start_, end_)
        return key, value

    # ---- input and output

    def _value(
        self,
        values: list[tuple[int, int]],
        wanted: str,
        verb: str,
        wanted_type: int,
        wanted_shape: tuple[int, ...],
    ) -> None:
        """Check that there is one value of this name, type and shape; its first dimension, the
        batch, must be free."""
        if len(values) != 1:
            self._refuse(f"{verb} {len(values)} values, not {wanted} alone")
        name, kind = b"", 0
        shape: list[int | None] = []
        for number, start, end in self._fields(_VALUE, *values[0]):
            if number == 1:
                name = self._text(start, end)
            elif number == 2:
                kind, shape = self._type(start, end)
        if name != wanted.encode():
            self._refuse(f"{verb} {_quoted(name)}, not {wanted}")
        if kind != wanted_type:
            self._refuse(f"{verb} {wanted} of type {kind}, not {wanted_type}")
        fixed = tuple(shape[1:])
        if not shape or shape[0] is not None or fixed != wanted_shape:
            free = "" if not shape or shape[0] is None else f" in batches of {shape[0]}"
            said = ", ".join("?" if side is None else str(side) for side in fixed)
            self._refuse(
                f"{verb} {wanted} of shape ({said}){free}, the manifest says {wanted_shape}"
            )

    def _type(self, start: int, end: int) -> tuple[int, list[int | None]]:
        kind, shape = 0, None
        for number, start_, end_ in self._fields(_TYPE, start, end):
            if number == 1:
                for inner, at, stop in self._fields(_TENSOR_TYPE, start_, end_):
                    if inner == 1:
                        kind = at
                    elif inner == 2:
                        shape = self._shape(at, stop)
        return kind, shape or []

    def _shape(self, start: int, end: int) -> list[int | None]:
        return [
            self._dimension(*d) for number, *d in self._fields(_SHAPE, start, end) if number == 1
        ]

    def _dimension(self, start: int, end: int) -> int | None:
        """The length of a dimension; None where it is free. One with both a number and a name is
        refused."""
        found = {number: at for number, at, _ in self._fields(_DIMENSION, start, end)}
        if 1 in found and 2 in found:
            self._broken("a dimension has a number and a name")
        return found.get(1)

    # ---- protobuf

    def _fields(self, message: _Message, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the number and the value of each field. A field that is checked must have its wire
        type, and must not repeat where it may come only once."""
        seen: set[int] = set()
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                self._broken(f"it has more than {MOST_FIELDS} fields")
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if number == 0 or tag >= 1 << 32:
                self._broken(f"{message.title} has a field without a number")
            if number in message.wires and wire != message.wires[number]:
                self._broken(f"{message.title} has field {number} of another kind")
            if number in message.once:
                if number in seen:
                    self._broken(f"{message.title} has field {number} twice")
                seen.add(number)
            value, stop = self._skip(wire, at, end)
            yield number, value, stop
            at = stop

    def _skip(self, wire: int, at: int, end: int) -> tuple[int, int]:
        """Skip a field: returns a number and where it ends, or where its bytes start and end."""
        if wire == _VARINT:
            return self._varint(at, end)
        if wire == _BYTES:
            length, at = self._varint(at, end)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            self._broken(f"a field is of kind {wire}")
        if length > end - at:
            self._broken("a field reaches beyond what it is in")
        return at, at + length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Read a number of seven bits a byte, the lowest bits first. The eighth bit says that
        another byte follows."""
        value, byte = 0, self._content.byte
        for shift in range(0, 70, 7):
            if at >= end:
                self._broken("it ends in the middle of a number")
            one = byte(at)
            at += 1
            value |= (one & 0x7F) << shift
            if one < 0x80:
                break
        if one >= 0x80 or value >= 1 << 64:
            self._broken("a number has more than 64 bits")
        return value, at

    def _text(self, start: int, end: int) -> bytes:
        if end - start > _MOST_TEXT:
            self._broken(f"a name has more than {_MOST_TEXT} bytes")
        return self._content.text(start, end)

    # ---- verdicts

    def _check_domain(self, domain: bytes) -> None:
        if domain not in _STANDARD:
            self._refuse(f"uses operators of {_quoted(domain)}, which are not ONNX's own")

    def _whole_number(self, text: bytes, whose: str) -> int:
        if not text.isdigit() or len(text) > 18:
            self._broken(f"{whose} has external data at {_quoted(text)}")
        return int(text)

    def _broken(self, why: str) -> NoReturn:
        raise BundleError(
            f"{self._name} is not an ONNX graph, or only a part of one: {why}",
        )

    def _refuse(self, why: str) -> NoReturn:
        raise BundleError(
            f"{self._name} {why}", hint="do not use this bundle: make it with anoco-edge export"
        )


def _product(dims: list[int], number_bytes: int) -> int:
    """The bytes of a tensor. A shape that is too large for any file gives 2**63."""
    total = number_bytes
    for side in dims:
        total *= side
        if total >= 1 << 63:
            return 1 << 63
    return total


def _quoted(text: bytes) -> str:
    """Quote a name of a graph for an error: on one line and short, as the native library does."""
    return repr("".join(chr(byte) if byte < 0x80 else "?" for byte in text[:_QUOTED_TEXT]))
