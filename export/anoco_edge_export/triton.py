"""Writes a Triton model repository for a single file: NAME/config.pbtxt and NAME/1/model.onnx."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from anoco_edge.bundle import InputContract
from anoco_edge.errors import StorageError, UsageError
from anoco_edge.storage.atomic_files import writing
from anoco_edge.storage.staging import staging
from anoco_edge_export.onnx_graph import DATA_SUFFIX

MARK = "# A detector of anoco-edge."
QUEUE_DELAY_US = 2000  # how long a picture waits for others; a backbone takes much longer

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")

# Triton requires a dimension beside the batch in every output, hence the reshape of `score`.
_CONFIG = """\
{mark}
#
# TF32 changes neighbour sets, so start the server with NVIDIA_TF32_OVERRIDE=0 in its environment.
# To run it through TensorRT (the first request then builds an engine, which takes minutes) add:
#   optimization {{ execution_accelerators {{ gpu_execution_accelerator: [ {{
#     name: "tensorrt"
#     parameters {{ key: "trt_engine_cache_enable" value: "1" }}
#   }} ] }} }}
name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: {max_batch}
input [
  {{ name: "pixels" data_type: TYPE_UINT8 dims: [ {height}, {width}, 3 ] }}
]
output [
  {{ name: "score" data_type: TYPE_FP32 dims: [ 1 ] reshape: {{ shape: [ ] }} }},
  {{ name: "energy" data_type: TYPE_FP32 dims: [ {rows}, {cols} ] }},
  {{ name: "map" data_type: TYPE_FP32 dims: [ {height}, {width} ] }}
]
instance_group [
  {{ count: 1 kind: KIND_AUTO }}
]
"""


def triton_config(
    name: str,
    contract: InputContract,
    max_batch: int = 8,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """Return the text of config.pbtxt; clients can read `parameters` such as the threshold there.

    >>> contract = InputContract(width=64, height=32, stride=16, rows=2, cols=4, dim=8)
    >>> [line for line in triton_config("nuts", contract).splitlines() if "batch" in line]
    ['max_batch_size: 8', 'dynamic_batching {', '  preferred_batch_size: [ 4, 8 ]']
    """
    text = _CONFIG.format(mark=MARK, name=name, max_batch=max_batch, **contract.model_dump())
    if max_batch > 1:
        preferred = ", ".join(str(n) for n in sorted({max_batch // 2, max_batch} - {1}))
        text += f"dynamic_batching {{\n  preferred_batch_size: [ {preferred} ]\n"
        text += f"  max_queue_delay_microseconds: {QUEUE_DELAY_US}\n}}\n"
    for key, value in sorted((parameters or {}).items()):
        # An ASCII string of JSON is also a string of protobuf's text format.
        said = f"key: {json.dumps(key)} value: {{ string_value: {json.dumps(value)} }}"
        text += f"parameters {{ {said} }}\n"
    return text


def write_triton_repository(
    folder: Path,
    single: bytes | Path,
    *,
    name: str,
    contract: InputContract,
    max_batch: int = 8,
    parameters: Mapping[str, str] | None = None,
) -> list[Path]:
    """Add the model to the repository `folder`, or replace it there; return the files written.

    `single` is the result of `write_single_file` for `contract`, as bytes or as a path.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a model name", hint="use a-z, A-Z, 0-9, '-', '_', '.'")
    if max_batch < 1:
        raise UsageError(f"the largest batch is {max_batch}", hint="it must be 1 or more")
    model = folder / name
    with writing(str(model)):
        _refuse_foreign(model)
        # The files are staged inside the repository, so that the rename stays on one volume.
        with staging(model) as stage:
            _fill(stage.building / "1", single)
            config = triton_config(name, contract, max_batch, parameters)
            (stage.building / "config.pbtxt").write_text(config, encoding="ascii")
            _sync_files(stage.building)
            stage.publish()
        return sorted(path for path in model.rglob("*") if path.is_file())


def _refuse_foreign(model: Path) -> None:
    """Raise StorageError unless `model` is absent, empty, or was written by this function."""
    if not model.exists() or (model.is_dir() and not any(model.iterdir())):
        return
    config = model / "config.pbtxt"
    if not config.is_file() or not config.read_bytes().startswith(MARK.encode()):
        raise StorageError(
            f"{model} was not written by anoco-edge, so it is not overwritten",
            hint="choose another folder or model name",
        )
    others = sorted(p.name for p in model.iterdir() if p.name not in ("1", "config.pbtxt"))
    if others:
        raise StorageError(
            f"{model} also holds {', '.join(others)}, so it is not overwritten",
            hint="move them away, or choose another folder or model name",
        )


def _fill(version: Path, single: bytes | Path) -> None:
    version.mkdir(parents=True)
    if isinstance(single, bytes):
        (version / "model.onnx").write_bytes(single)
    else:
        shutil.copyfile(single, version / "model.onnx")
        data = single.with_name(single.name + DATA_SUFFIX)
        if data.exists():  # the graph refers to it by this name
            shutil.copyfile(data, version / data.name)


def _sync_files(building: Path) -> None:
    for file in building.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
