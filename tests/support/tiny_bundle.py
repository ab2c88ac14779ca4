"""Makes a complete bundle in milliseconds without torch, to test everything after export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from anoco_edge.bundle import Bundle, InputContract, create_bundle
from anoco_edge.bundle.schema import Backbone, Weights
from anoco_edge.engines.selftest import selftest_energies
from anoco_edge.scoring.onnx_scorer import scoring_model

STRIDE = 16


def make_tiny_bundle(path: Path, *, size: tuple[int, int] = (64, 64), dim: int = 8) -> Bundle:
    """Make a bundle without products, whose backbone measures texture with random 4x4 filters."""
    width, height = size
    model = tiny_backbone(width, height, dim)
    contract = InputContract(
        width=width,
        height=height,
        stride=STRIDE,
        rows=height // STRIDE,
        cols=width // STRIDE,
        dim=dim,
    )
    weights = Weights(source="tests/tiny_bundle.py", sha256="0" * 64, license="Apache-2.0")
    return create_bundle(
        path,
        backbone=Backbone(
            id="tiny",
            architecture="tiny",
            tap="features",
            feature_norm="layernorm",
            pooling="none",
            weights=weights,
        ),
        contract=contract,
        parity={},
        tools={},
        files={
            "backbone.onnx": model,
            "scoring.onnx": scoring_model(),
            "selftest.safetensors": selftest_content(model, width, height),
            "LICENSES/NOTICE": b"Random numbers, free to use.\n",
        },
    )


def tiny_backbone(width: int, height: int, dim: int) -> bytes:
    """Return a graph that turns uint8 NHWC pixels into features [B, N, d].

    It applies the filters, rectifies, averages over 16 x 16 pixels and ends with a LayerNorm.
    """
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    filters = rng.normal(size=(dim, 3, 4, 4)).astype(np.float32)
    filters -= filters.mean(axis=(1, 2, 3), keepdims=True)  # so brightness has no effect
    constants = {
        "scale": np.float32(1 / 255),
        "filters": filters,
        "bias": rng.uniform(0, 0.2, size=dim).astype(np.float32),
        "ones": np.ones(dim, np.float32),
        "shape": np.array([0, dim, -1], np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["pixels"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "scale"], ["scaled"]),
        helper.make_node("Transpose", ["scaled"], ["nchw"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["nchw", "filters", "bias"], ["edges"], strides=[4, 4]),
        helper.make_node("Relu", ["edges"], ["texture"]),
        helper.make_node("AveragePool", ["texture"], ["grid"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Reshape", ["grid", "shape"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["rows"], perm=[0, 2, 1]),
        helper.make_node("LayerNormalization", ["rows", "ones"], ["features"], axis=-1),
    ]
    patches = (width // STRIDE) * (height // STRIDE)
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["b", height, width, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["b", patches, dim])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def textured_picture(seed: int, width: int = 96, height: int = 80) -> np.ndarray:
    """Return a good part: a woven pattern whose shift, light and shade depend on the seed."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(float)
    phase = rng.uniform(0, 2, size=2)
    weave = np.sin((x + phase[0]) / 2.5) * np.sin((y + phase[1]) / 3.5)
    tint = np.array([1.0, 0.9, 0.7]) * rng.uniform(0.95, 1.05)
    picture = 128 + 60 * weave[..., None] * tint + rng.normal(0, 4, (height, width, 3))
    # The broad shades hardly affect the backbone's filters. Without them, two parts that happen to
    # lie alike would differ only in noise, as frames of one and the same part do.
    shades = np.random.default_rng([seed, 1]).uniform(-12, 12, (2, 3)).astype(np.float32)
    large = Image.fromarray(shades).resize((width, height), Image.Resampling.BICUBIC)
    picture += np.asarray(large)[..., None]
    return picture.clip(0, 255).astype(np.uint8)


def noisy_frame(rgb: np.ndarray, seed: int, sigma: float = 3.0) -> np.ndarray:
    """Return another frame of the same part, in which only the sensor's noise differs."""
    noise = np.random.default_rng(seed).normal(0, sigma, rgb.shape)
    return (rgb + noise).round().clip(0, 255).astype(np.uint8)


def write_good_pictures(
    folder: Path, n: int, *, width: int = 96, height: int = 80, seed: int = 0
) -> list[Path]:
    """Write `n` pictures of good parts as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"good{k}.png" for k in range(n)]
    for k, path in enumerate(paths):
        Image.fromarray(textured_picture(seed + k, width, height)).save(path)
    return paths


def selftest_content(model: bytes, width: int, height: int) -> bytes:
    import onnxruntime
    from safetensors.numpy import save

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    pixels = textured_picture(99, width, height)[None]
    features = session.run(["features"], {"pixels": pixels})[0][0]
    content: bytes = save(
        {
            "pixels": np.ascontiguousarray(pixels),
            "features": np.ascontiguousarray(features),
            "energies": selftest_energies(features).astype(np.float32),
        }
    )
    return content
