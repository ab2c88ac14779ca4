"""The emulation that rounds every FP16 tensor agrees with NumPy's float16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from anoco_edge.errors import UsageError
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.fp16_emulation import EmulationResult, emulate_half, emulation_graph
from anoco_edge_export.half_format import BF16

HEAD = (
    '<ir_version: 10, opset_import: ["" : 18]>\nsmall (float[batch, n, 4] x) => (float[b, n, m] y)'
)


def graph(body: str, **weights: NDArray[Any]) -> Any:
    model = parser.parse_model(f"{HEAD} {{ {body} }}")
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return model


def to_half(model: Any, islands: Any) -> Any:
    return convert_to_half(model, islands)[0]


def to_fp16(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def walk(
    model: Any, x: NDArray[Any], watch: tuple[str, ...] = (), islands: Any = ()
) -> EmulationResult:
    return emulate_half(to_half(model, islands), x.astype(np.float32), watch)


def test_a_product_beyond_fp16_is_infinite_and_named() -> None:
    body = "a = Relu (x)\n sum = MatMul (a, w)\n z = Relu (sum)\n y = Neg (z)"
    found = walk(graph(body, w=np.full((4, 1), 51200.0)), np.ones((1, 2, 4)))  # 204800
    assert (found.features == -np.inf).all()
    assert (found.first_non_finite, found.closest, found.headroom) == ("sum", "sum", 0.0)
    assert list(found.peaks) == ["x/fp16", "a", "sum", "z", "y/fp16"]


def test_a_sum_is_rounded_even_where_the_next_node_takes_it_apart() -> None:
    body = "a = Add (x, tiny)\n b = Sub (a, x)\n y = Relu (b)"
    model = graph(body, tiny=np.array(2.0**-12))
    assert walk(model, np.ones((1, 1, 4))).features.max() == 0
    # In an FP32 island the same values are not rounded; the weight is exact in either type.
    kept = walk(model, np.ones((1, 1, 4)), islands=("op:Add", "op:Sub"))
    assert kept.features.min() == 2.0**-12


def test_weights_are_rounded_too() -> None:
    found = walk(graph("y = Mul (x, w)", w=np.array(1 + 2.0**-12)), np.ones((1, 1, 4)))
    assert found.features.max() == 1


def test_it_equals_a_walk_by_hand() -> None:
    # The values have few bits, so that FP32 sums are exact in any order and all error is rounding.
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 6, 4)).astype(np.float32)
    w, v = (rng.integers(-64, 64, (4, 4)) / np.float32(16) for _ in range(2))
    bias = rng.normal(size=4).astype(np.float32)
    body = (
        "a = MatMul (x, w)\n b = Add (a, bias)\n c = Relu (b)\n d = Mul (c, c)\n y = MatMul (c, v)"
    )
    found = walk(graph(body, w=w, v=v, bias=bias), x, ("a", "b", "d"))
    a = to_fp16(x @ w)
    b = to_fp16(a + to_fp16(bias))
    c = np.maximum(b, 0)
    assert np.array_equal(found.watched["a"], a)
    assert np.array_equal(found.watched["b"], b)
    assert np.array_equal(found.watched["d"], to_fp16(c * c))
    assert np.array_equal(found.features, to_fp16(c @ v))
    assert not np.array_equal(b, x @ w + bias)
    assert np.isinf(to_fp16(c * c)).any()
    assert found.first_non_finite == "d"
    assert found.peaks["b"] == np.abs(b).max()


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float32, (1, 3, 4), elements=st.floats(width=32, allow_nan=False)),
    st.sampled_from(["Relu", "Neg", "Abs"]),
)
def test_any_number_is_rounded_as_numpy_rounds_it(x: NDArray[np.float32], op: str) -> None:
    by_hand = {"Relu": lambda v: np.maximum(v, 0), "Neg": np.negative, "Abs": np.abs}
    found = walk(graph(f"y = {op} (x)"), x)
    assert np.array_equal(found.features, to_fp16(by_hand[op](to_fp16(x))))
    assert found.peaks["x/fp16"] == np.abs(to_fp16(x)).max()


def test_nan_is_found_wherever_it_lies() -> None:
    x = np.ones((1, 3, 4))
    x[0, 1, 2] = 0
    found = walk(graph("a = Div (x, x)\n b = Add (a, a)\n y = Relu (b)"), x)
    assert found.first_non_finite == "a"
    assert np.isnan(found.peaks["a"])
    assert found.headroom == 0


def test_the_tensor_closest_to_the_end_is_named_with_its_room() -> None:
    body = "a = Mul (x, large)\n b = Transpose <perm = [0, 2, 1]> (a)\n y = Mul (b, small)"
    weights = {"large": np.array(-1024.0), "small": np.array(0.5)}
    found = walk(graph(body, **weights), np.full((1, 2, 4), 16.0))
    assert (found.closest, found.first_non_finite) == ("a", None)
    assert found.headroom == 65504 / 16384
    assert "b" not in found.peaks  # it only moves the values of a


def test_without_fp16_there_is_nothing_to_overflow() -> None:
    found = walk(graph("y = Relu (x)"), np.full((1, 1, 4), 1e6), islands=("op:Relu",))
    assert found.features.max() == 1e6
    assert (found.peaks, found.closest, found.headroom) == ({}, None, float("inf"))


def test_pictures_are_walked_one_by_one_and_the_worst_counts() -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    model = graph("a = Mul (x, x)\n s = Softmax (a)\n y = Relu (s)")
    together = walk(model, x, ("a", "s"), ("softmax",))
    assert together.features.shape == (3, 2, 4)
    assert together.peaks["a"] == 23**2
    for i in range(3):
        alone = walk(model, x[i : i + 1], ("a", "s"), ("softmax",))
        assert np.array_equal(together.features[i], alone.features[0])
        assert np.array_equal(together.watched["s"][i], alone.watched["s"][0])
    # It belongs to an island.
    assert not np.array_equal(together.watched["s"], to_fp16(together.watched["s"]))


def test_an_overflow_of_one_picture_is_not_lost_behind_the_next() -> None:
    x = np.stack([np.full((1, 4), value) for value in (1.0, 300.0, 2.0)])
    assert walk(graph("a = Mul (x, x)\n y = Relu (a)"), x).first_non_finite == "a"
    hidden = np.stack([np.full((1, 4), value) for value in (0.0, 1.0)])
    assert walk(graph("a = Div (x, x)\n y = Relu (a)"), hidden).first_non_finite == "a"


def test_only_what_a_node_makes_can_be_watched() -> None:
    model = to_half(graph("shape = Shape (x)\n y = Reshape (x, shape)"), [])
    for name in ("blocks.7", "shape", "x"):
        with pytest.raises(UsageError, match=f"no float tensor '{name}'"):
            emulate_half(model, np.ones((1, 1, 4), np.float32), [name])
    found = emulate_half(model, np.ones((1, 1, 4), np.float32), ["y"])
    assert np.array_equal(found.watched["y"], found.features)


def test_the_graph_does_not_grow_and_moves_are_not_rounded_again() -> None:
    body = "a = MatMul (x, w)\n b = Transpose <perm = [0, 2, 1]> (a)\n y = Relu (b)"
    typed = to_half(graph(body, w=np.ones((4, 4096))), [])
    rounded, probed = emulation_graph(typed)
    assert sum(t.ByteSize() for t in rounded.graph.initializer) < 4 * 4096 * 2 + 100
    assert probed == ["x/fp16", "a", "y/fp16"]


def test_bf16_is_rounded_to_eight_bits_and_does_not_overflow() -> None:
    """Against BF16 by hand: the upper 16 bits of FP32, rounded to the nearest even."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 64, 4)).astype(np.float32) * 1e6
    typed, report = convert_to_half(graph("y = Mul (x, w)", w=np.array(3e5)), [], BF16)
    assert report.nodes == {"bf16": 1, "fp32": 0}
    found = emulate_half(typed, x)
    weight = to_bf16(np.array([3e5], np.float32))
    np.testing.assert_array_equal(found.features, to_bf16(to_bf16(x) * weight))
    assert list(found.peaks) == ["x/bf16", "y/bf16"] and found.first_non_finite is None
    assert found.headroom == pytest.approx(BF16.largest / np.abs(found.features).max(), rel=1e-6)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)
