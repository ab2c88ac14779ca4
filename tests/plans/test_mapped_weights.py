"""A graph's weights go to the parser where they lie in the file, as the onnx package reads them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from anoco_edge.plans.mapped_weights import MappedWeights, split_weights


def model(sizes: list[int], *, raw: bool = True) -> bytes:
    """Return a graph that adds weights of so many numbers, one after the other."""
    tensors = []
    for number, size in enumerate(sizes):
        values = np.arange(size, dtype=np.float32) + number
        tensor = numpy_helper.from_array(values, f"w{number}")
        if not raw:
            tensor = helper.make_tensor(f"w{number}", 1, [size], values)
        tensors.append(tensor)
    nodes = [helper.make_node("Identity", [t.name], [f"y{t.name}"]) for t in tensors]
    made = helper.make_graph(nodes, "g", [], [], tensors)
    return bytes(helper.make_model(made, ir_version=10).SerializeToString())


@given(st.lists(st.integers(0, 700), max_size=6))
def test_large_weights_are_taken_out_and_all_else_stays(sizes: list[int]) -> None:
    content = model(sizes)
    light, places = split_weights(content)
    before, after = onnx.load_from_string(content), onnx.load_from_string(light)
    assert list(after.graph.node) == list(before.graph.node)
    for old, new in zip(before.graph.initializer, after.graph.initializer, strict=True):
        assert (new.name, new.dims, new.data_type) == (old.name, old.dims, old.data_type)
        if len(old.raw_data) < 1024:
            assert new == old and old.name not in places
            continue
        file, offset, length = places[old.name]
        assert file == "" and content[offset : offset + length] == old.raw_data
        assert new.data_location == onnx.TensorProto.EXTERNAL and not new.raw_data


def test_numbers_that_are_no_raw_bytes_stay() -> None:
    content = model([700], raw=False)
    assert split_weights(content) == (content, {})


@given(st.data())
def test_what_is_cut_short_is_an_error(data: Any) -> None:
    content = model([300])
    cut = content[: data.draw(st.integers(1, len(content) - 1))]
    try:
        onnx.load_from_string(cut)
    except Exception:  # noqa: BLE001 (protobuf's error has no public name)
        with pytest.raises(ValueError, match=r"field|number"):
            split_weights(cut)


class Parser:
    """Takes weights as TensorRT's parser does, and reads them when it parses."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.given: dict[str, tuple[int, int]] = {}
        self.read: dict[str, bytes] = {}
        self.file = ""

    def load_model_proto(self, light: bytes, path: str) -> bool:
        return self.refuses != "model"

    def parse_from_file(self, path: str) -> bool:
        self.file = path
        return False

    def load_initializer(self, name: str, address: int, length: int) -> bool:
        self.given[name] = (address, length)
        return self.refuses != name

    def parse_model_proto(self) -> bool:
        self.read = {n: ctypes.string_at(*place) for n, place in self.given.items()}
        return True


@pytest.mark.parametrize("beside", [False, True])
def test_the_parser_reads_the_file_itself(beside: bool, tmp_path: Path) -> None:
    path, content = tmp_path / "backbone.onnx", model([300, 2, 400])
    before = onnx.load_from_string(content)
    expected = {t.name: t.raw_data for t in before.graph.initializer if len(t.raw_data) >= 1024}
    path.write_bytes(content)
    if beside:
        onnx.save_model(
            before,
            path,
            save_as_external_data=True,
            location="backbone.onnx.data",
            size_threshold=1024,
        )
    weights, parser = MappedWeights(path), Parser()
    assert weights.parse(parser) and parser.read == expected
    assert sorted(expected) == ["w0", "w2"]
    for refused in ("model", "w2"):
        assert not MappedWeights(path).parse(Parser(refused))


@pytest.mark.parametrize("data", [None, b"", bytes(1199)])
def test_weights_that_are_not_there_are_for_the_parser_to_tell(
    data: bytes | None, tmp_path: Path
) -> None:
    """It is given no address beyond the end of a file."""
    path = tmp_path / "backbone.onnx"
    made = onnx.load_from_string(model([300]))
    beside = {"save_as_external_data": True, "location": "w.data", "size_threshold": 1024}
    onnx.save_model(made, path, **beside)
    (tmp_path / "w.data").unlink()
    if data is not None:
        (tmp_path / "w.data").write_bytes(data)
    parser = Parser()
    assert not MappedWeights(path).parse(parser)
    assert parser.file == str(path) and parser.given == {}
