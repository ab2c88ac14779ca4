"""FP16 graphs have the right nodes in FP32, Casts in the right places, and converted weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper, parser

from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge_export.fp16 import convert_to_half
from anoco_edge_export.fp16_emulation import emulate_half
from anoco_edge_export.fp32_islands import ISLANDS, tensor_types

DIM, TOKENS = 8, 5
ALL = [*ISLANDS]

# This is one block as families.vit writes it: constant rotary tables and a residual stream.
BLOCK = f"""
<ir_version: 10, opset_import: ["" : 18]>
backbone (uint8[batch, {TOKENS}, {DIM}] pixels) => (float[batch, {TOKENS}, {DIM}] features) {{
    raw = Cast <to = 1> (pixels)
    embedded = MatMul (raw, w_embed)
    stream = Add (embedded, b_embed)
    normed = LayerNormalization <axis = -1> (stream, scale, shift)
    q = MatMul (normed, w_q)
    k = MatMul (normed, w_k)
    first, second = Split <axis = -1, num_outputs = 2> (q)
    swapped = Concat <axis = -1> (second, first)
    cosine = Mul (q, cos)
    sine = Mul (swapped, sin)
    turned = Add (cosine, sine)
    scaled = Mul (turned, root)
    k_t = Transpose <perm = [0, 2, 1]> (k)
    logits = MatMul (scaled, k_t)
    attention = Softmax <axis = -1> (logits)
    mixed = MatMul (attention, normed)
    branch = MatMul (mixed, w_out)
    end = Add (stream, branch)
    final = LayerNormalization <axis = -1> (end, scale, shift)
    features = Mul (final, root)
}}
"""


def to_half(model: Any, islands: Any) -> Any:
    return convert_to_half(model, islands)[0]


def block() -> Any:
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.5, (DIM, DIM)) for name in ("w_q", "w_k", "w_out")}
    weights |= {"w_embed": rng.normal(0, 0.01, (DIM, DIM)), "b_embed": rng.normal(size=DIM)}
    weights |= {name: rng.normal(1, 0.1, (TOKENS, DIM)) for name in ("cos", "sin")}
    weights |= {name: rng.normal(1, 0.1, DIM) for name in ("scale", "shift")}
    model = graph(BLOCK, **weights, root=np.array(0.35))
    for node in model.graph.node:  # the text form has no names with dots
        for names in (node.input, node.output):
            names[:] = ["blocks.0" if name == "end" else name for name in names]
    return model


def graph(text: str, **weights: NDArray[Any]) -> Any:
    model = parser.parse_model(text)
    for name, value in weights.items():
        kind = np.int64 if value.dtype.kind == "i" else np.float32
        model.graph.initializer.append(numpy_helper.from_array(value.astype(kind), name))
    return model


def chain(body: str, **weights: NDArray[Any]) -> Any:
    """Make a graph of float [batch, 4] -> float."""
    head = '<ir_version: 10, opset_import: ["" : 18]>\nsmall (float[batch, 4] x) => (float[n, m] y)'
    return graph(f"{head} {{ {body} }}", **weights)


def run(model: Any, feed: NDArray[Any]) -> NDArray[np.float32]:
    session = open_session(model.SerializeToString(), "the graph")
    result: NDArray[np.float32] = session.run(None, {model.graph.input[0].name: feed})[0]
    return result


def single(model: Any) -> set[str]:
    """List the FP32 tensors that nodes produce, except for those of Casts."""
    types = tensor_types(model)
    made = {o for n in model.graph.node for o in n.output if "/" not in o}
    return {name for name in made if types[name] == TensorProto.FLOAT}


def casts(model: Any) -> list[tuple[str, str]]:
    return [(n.input[0], n.output[0]) for n in model.graph.node if n.op_type == "Cast"]


def weight_types(model: Any) -> dict[str, int]:
    return {t.name: t.data_type for t in model.graph.initializer}


# Types


def test_everything_is_half_but_inputs_and_outputs() -> None:
    model = block()
    before = model.SerializeToString()
    half, report = convert_to_half(model, [])
    assert model.SerializeToString() == before
    assert single(half) == {"features"}
    assert casts(half) == [("pixels", "raw"), ("features/fp16", "features")]
    assert set(weight_types(half).values()) == {TensorProto.FLOAT16}
    assert half.graph.input == model.graph.input
    assert half.graph.output == model.graph.output
    assert (half.ir_version, half.opset_import[0].version) == (10, 18)
    assert (report.nodes, report.casts) == ({"fp16": 20, "fp32": 0}, 1)
    assert report.initializer_bytes < 0.6 * sum(t.ByteSize() for t in model.graph.initializer)


@pytest.mark.parametrize(
    ("island", "tensors"),
    [
        ("softmax", {"attention"}),
        ("logits", {"logits"}),
        ("layernorm", {"normed", "final"}),
        ("embedding", {"raw", "embedded", "stream"}),
        ("output", {"final"}),
        ("rope", {"first", "second", "swapped", "cosine", "sine", "turned"}),
        ("residual", {"blocks.0"}),
        ("op:Transpose", {"k_t"}),
    ],
)
def test_an_island_is_found(island: str, tensors: set[str]) -> None:
    half, report = convert_to_half(block(), [island])
    assert single(half) == tensors | {"features"}
    assert report.unmatched == ()


def test_neighbours_on_islands_hand_over_fp32() -> None:
    half = to_half(block(), ["logits", "softmax"])
    found = casts(half)
    assert ("scaled", "scaled/fp32") in found
    assert ("k_t", "k_t/fp32") in found
    assert ("attention", "attention/fp16") in found
    assert not any(source == "logits" for source, _ in found)
    # q is cast to FP32 once for its two uses, and the result is FP16 again.
    rope = casts(to_half(block(), ["rope"]))
    assert sorted(rope)[2:] == [("q", "q/fp32"), ("turned", "turned/fp16")]


def test_a_rotation_is_fp16_also_for_fp32_neighbours() -> None:
    """Nothing lies between it and the logits, as with the keys: it is rounded and cast up again."""
    model = block()
    (scaled,) = (n for n in model.graph.node if "scaled" in n.output)
    scaled.op_type, scaled.input[:] = "Identity", ["turned"]
    half = to_half(model, ["rope", "logits", "softmax"])
    found = casts(half)
    assert ("turned", "turned/fp16") in found and ("scaled", "scaled/fp32") in found
    assert not any("turned" in node.input for node in half.graph.node if node.op_type != "Cast")
    model.graph.node.remove(scaled)
    (product,) = (n for n in model.graph.node if "logits" in n.output)
    product.input[0] = "turned"
    found = casts(to_half(model, ["rope", "logits", "softmax"]))
    assert {("turned", "turned/fp16"), ("turned/fp16", "turned/fp32")} <= set(found)


def test_data_is_moved_in_the_type_of_its_neighbours() -> None:
    moved = chain("a = Softmax (x)\n b = Transpose (a)\n y = Softmax (b)")
    assert casts(to_half(moved, ["softmax"])) == []
    mixed = chain("a = Softmax (x)\n b = Transpose (a)\n c = Relu (b)\n y = Softmax (c)")
    assert casts(to_half(mixed, ["softmax"])) == [("a", "a/fp16"), ("c", "c/fp32")]


def test_a_tensor_is_cast_once_however_many_want_it() -> None:
    twice = chain("a = Relu (x)\n b = Softmax (a)\n c = LogSoftmax (a)\n y = Add (b, c)")
    assert casts(to_half(twice, ["softmax"]))[:2] == [("x", "x/fp16"), ("a", "a/fp32")]
    assert len(casts(to_half(twice, ["softmax"]))) == 5


def test_an_island_that_is_not_there_is_reported_and_an_unknown_one_refused() -> None:
    small = chain("y = Relu (x)")
    _, report = convert_to_half(small, [*ALL, "op:Erf"])
    assert set(report.unmatched) == {*ALL, "op:Erf"} - {"output"}
    for wrong in ("attention", "op:Erff", "op:"):
        with pytest.raises(UsageError, match=f"unknown island '{wrong}'; there is softmax"):
            to_half(small, [wrong])


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean (x, last)\n d = Sub (x, m)\n p = Pow (d, two)\n v = ReduceMean (p, last)\n"
        "e = Add (v, tiny)\n s = Sqrt (e)\n n = Div (d, s)\n g = Mul (n, two)\n y = Add (g, two)",
        "p = Mul (x, x)\n v = ReduceMean (p, last)\n e = Add (v, tiny)\n s = Sqrt (e)\n"
        "r = Reciprocal (s)\n n = Mul (x, r)\n y = Mul (n, two)",
    ],
)
def test_a_norm_in_pieces_is_a_norm(body: str) -> None:
    inner = body.replace("(x", "(h").replace("x)", "h)").replace("y =", "z =")
    whole = f"h = Relu (x)\n {inner}\n y = Relu (z)"
    last, two, tiny = np.array([-1]), np.array(2.0), np.array(1e-6)
    half = to_half(chain(whole, last=last, two=two, tiny=tiny), ["layernorm"])
    assert single(half) == {line.split()[0] for line in inner.split("\n")} | {"y"}


def test_a_gelu_is_not_a_residual() -> None:
    gelu = "c = Mul (h, three)\n a = Add (h, c)\n t = Tanh (a)\n g = Mul (h, t)"
    body = f"h = MatMul (x, w)\n {gelu}\n b = MatMul (g, w)\n r = Add (x, b)\n y = Relu (r)"
    square = np.eye(4)
    _, report = convert_to_half(
        chain("x0 = Relu (x)\n " + body.replace("Add (x,", "Add (x0,"), w=square, three=square[0]),
        ["residual"],
    )
    assert report.islands == {"residual": 2}  # the Add and the Relu after it


def test_two_scaled_branches_are_not_a_rotation() -> None:
    body = "a = Relu (x)\n b = MatMul (a, w)\n c = Mul (a, g)\n d = Mul (b, g)\n y = Add (c, d)"
    _, report = convert_to_half(chain(body, w=np.eye(4), g=np.ones(4)), ["rope"])
    assert report.unmatched == ("rope",)


# Weights and constants


def test_a_weight_beyond_fp16_is_named() -> None:
    body = "y = MatMul (x, heavy)"
    heavy = np.full((4, 4), 7e4)
    with pytest.raises(AnocoError, match="weight heavy holds 70000, and FP16 ends at 65504"):
        to_half(chain(body, heavy=heavy), [])
    assert to_half(chain(body, heavy=heavy), ["op:MatMul"])
    assert to_half(chain(body, heavy=np.full((4, 4), 65504.0)), [])


def test_infinities_stay_and_bounds_may_become_infinite() -> None:
    body = "c = Clip (x, low, high)\n y = Min (c, mask)"
    model = chain(body, low=np.array(-3e38), high=np.array(6.0), mask=np.full(4, np.inf))
    feed = np.array([[-5.0, 0.0, 3.0, 9.0]], np.float32)
    assert run(to_half(model, []), feed).tolist() == [[-5.0, 0.0, 3.0, 6.0]]


def test_what_rounding_does_to_weights_is_counted() -> None:
    w = np.array([[1.0, 0.0, 1e-6, 1e-9]])
    _, report = convert_to_half(chain("y = Add (x, w)", w=w), [])
    assert (report.rounded, report.subnormal, report.flushed) == (3, 1, 1)
    assert report.flushed_share == pytest.approx(1 / 3)
    assert (report.largest_weight, report.largest_weight_name) == (1.0, "w")


def test_a_weight_wanted_in_both_types_is_there_twice_and_others_once() -> None:
    body = "a = Mul (x, both)\n b = Softmax (a)\n c = Sub (b, both)\n y = Add (c, one)"
    model = chain(body, both=np.ones(4), one=np.ones(4), unused=np.ones(4))
    half = to_half(model, ["op:Sub"])
    assert weight_types(half) == {
        "both": TensorProto.FLOAT16,
        "both/fp32": TensorProto.FLOAT,
        "one": TensorProto.FLOAT16,
    }


def test_a_constant_is_not_rounded_before_an_island_uses_it() -> None:
    body = "t = Expand (token, four)\n a = Mul (x, t)\n b = Relu (a)\n y = Div (b, t)"
    model = chain(body, token=np.array([1 + 2.0**-12]), four=np.array([4]))
    assert run(to_half(model, ["op:Mul"]), np.ones((1, 4), np.float32)).max() == 1
    assert casts(to_half(model, ["op:Mul"]))[0] == ("a", "a/fp16")
    assert "t" in single(to_half(model, ["op:Mul"]))


def test_operands_that_are_no_weights() -> None:
    body = """
        one = Constant <value_float = 0.5> ()
        list = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> ()
        shape = Shape (x)
        zeros = ConstantOfShape <value = float[1] {2.5}> (shape)
        plain = ConstantOfShape (shape)
        length = Cast <to = 1> (shape)
        a = Add (x, zeros)
        b = Mul (a, one)
        c = Add (b, list)
        d = Pad (c, pads, one)
        wide = Unsqueeze (d, axes)
        large = Resize <mode = "nearest"> (wide, , scales)
        e = Squeeze (large, axes)
        f = ReduceMax <keepdims = 1> (length)
        g = Add (e, f)
        h = Greater (g, one)
        i = Where (h, g, one)
        first = ReduceMax <keepdims = 1> (plain)
        y = Add (i, first)
    """
    scales = np.array([1.0, 1.0, 1.0, 2.0])
    model = chain(body, pads=np.array([0, 1, 0, 1]), axes=np.array([0, 1]), scales=scales)
    half = to_half(model, [])
    feed = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert run(half, feed).tolist() == run(model, feed).tolist()
    assert weight_types(half)["scales"] == TensorProto.FLOAT
    assert {"zeros", "plain", "length", "f"} <= single(half)  # shapes do not become FP16
    assert not any(n.op_type == "Constant" for n in half.graph.node)


def test_a_graph_that_is_no_use_is_refused() -> None:
    half = to_half(block(), [])
    with pytest.raises(UsageError, match="already has 16-bit tensors"):
        to_half(half, [])
    broken = chain("y = MatMul (x, w)", w=np.ones((3, 4)))
    with pytest.raises(AnocoError, match="not valid ONNX"):
        to_half(broken, [])


# Random graphs

OPS = ["Add", "MatMul", "Softmax", "Relu", "Transpose", "LayerNormalization", "Concat"]


@st.composite
def random_graphs(draw: st.DrawFn) -> Any:
    tensors, lines = ["x"], []
    for i in range(draw(st.integers(1, 12))):
        op, a = draw(st.sampled_from(OPS)), draw(st.sampled_from(tensors))
        b = draw(st.sampled_from([*tensors, "w"]))
        if op == "Concat":
            lines += [f"c{i} = Concat <axis = 0> ({a}, {b})", f"t{i} = MatMul (narrow, c{i})"]
        else:
            second = {"Add": f", {b}", "MatMul": f", {b}", "LayerNormalization": ", one"}
            lines.append(f"t{i} = {op} ({a}{second.get(op, '')})")
        tensors.append(f"t{i}")
    lines.append(f"y = Identity ({tensors[-1]})")
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(4, 4)) / 4, "one": np.ones(4), "narrow": np.eye(4, 8)}
    return chain("\n".join(lines), **weights)


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.sets(st.sampled_from([*ALL, "op:Add", "op:MatMul"])))
def test_types_are_consistent(model: Any, islands: set[str]) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    half, report = convert_to_half(model, sorted(islands))  # convert runs onnx's full check
    types, made = tensor_types(half), {o: n for n in half.graph.node for o in n.output}
    inserted = casts(half)
    assert len(inserted) == len(set(inserted)) == report.casts
    for source, target in inserted:
        assert types[source] != types[target]
        assert source not in made or made[source].op_type != "Cast"
    assert report.nodes["fp16"] + report.nodes["fp32"] == len(model.graph.node)
    feed = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    np.testing.assert_allclose(run(half, feed), run(model, feed), rtol=0.1, atol=0.1)


# A real one


@pytest.fixture(scope="module")
def vit() -> Any:
    """Export a small DINOv3 of timm with torch's exporter."""
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_small_patch16_dinov3", embed_dim=64, num_heads=2, depth=1, img_size=64, num_classes=0
    )
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "gamma" in name:  # it is 1e-5 by default, which hides whatever happens in a block
                value.normal_(0.2, 0.05)
            elif value.ndim == 2:
                value.normal_(0, 1.4 / value.shape[1] ** 0.5)

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any) -> Any:
            x = (pixels.to(torch.float32).permute(0, 3, 1, 2) - 120) / 60
            return self.model.forward_features(x)[:, 5:]

    example = (torch.zeros((2, 64, 64, 3), dtype=torch.uint8),)
    program = torch.onnx.export(
        Features().eval().requires_grad_(False),
        example,
        dynamo=True,
        opset_version=18,
        input_names=["pixels"],
        output_names=["features"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    program.model_proto.ir_version = 10
    return program.model_proto


def test_islands_of_a_vision_transformer(vit: Any) -> None:
    _, report = convert_to_half(vit, ALL)
    found = report.islands
    assert (found["softmax"], found["logits"], found["layernorm"]) == (1, 1, 3)
    assert found["residual"] == 2
    assert found["rope"] == 14  # slice, two products, split, neg, concat, add: of q and of k
    assert found["embedding"] == 5  # cast, transpose, sub, div, conv
    assert found["output"] == 2  # norm, slice


@pytest.mark.parametrize("islands", [[], ["softmax", "logits", "layernorm", "embedding"], ALL])
def test_a_vision_transformer_survives(vit: Any, islands: list[str]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    half = to_half(vit, islands)
    onnx.checker.check_model(half, full_check=True)
    expected = run(vit, pixels).astype(np.float64)
    for features in (run(half, pixels), emulate_half(half, pixels).features):
        product = (expected * features).sum(axis=-1)
        norms = np.linalg.norm(expected, axis=-1) * np.linalg.norm(features, axis=-1)
        assert (1 - product / norms).max() < 1e-5
        assert not np.array_equal(features, expected)


def test_int8_is_no_island_that_can_be_asked_for() -> None:
    """It applies to INT8 exports only; on an FP16 export it would silently do nothing."""
    assert "int8" not in ISLANDS
    with pytest.raises(UsageError, match="unknown island 'int8'; there is softmax, "):
        convert_to_half(block(), ["int8"])
