"""Runs anomalib's PatchCore for `anoco-edge bench --rivals anomalib`, in a process of its own.

It is a program that needs anomalib and nothing of this package, so that the Python of another
environment can run it: anomalib takes 6.5 GB. It reads lines of JSON from stdin and answers each
with one on stdout. The first line says what to build, each later one which picture to run how.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

HINTS = {"fp32": "f32", "bf16": "bf16"}


def main() -> None:
    """Answer lines until stdin ends."""
    # What anomalib prints goes to stderr, so that stdout holds answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    try:
        for name in ("anomalib", "openvino"):
            import_module(name)
    except ImportError as error:
        answer(missing=error.name or str(error))
        return
    runs: dict[str, Any] = {}
    pictures: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        if not runs:
            runs, bank = _build(request)
            pictures = [_read(path) for path in request["pictures"]]
            for run in runs.values():
                run.predict(pictures[0])
            versions = {name: version(name) for name in ("anomalib", "openvino", "torch")}
            answer(bank=bank, versions=versions)
            continue
        picture = pictures[request["picture"]]
        start = time.perf_counter()
        runs[request["precision"]].predict(picture)
        answer(ms=(time.perf_counter() - start) * 1000)


def _build(request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Make PatchCore's bank of the references, export it, and load it in each precision."""
    Patchcore = import_module("anomalib.models").Patchcore
    inferencer = import_module("anomalib.deploy").OpenVINOInferencer
    height, width = request["size"]
    model = Patchcore(
        backbone=request["backbone"],
        layers=request["layers"],
        pre_trained=False,  # weights do not change the time, and need no network
        coreset_sampling_ratio=request["ratio"],
        pre_processor=Patchcore.configure_pre_processor(image_size=(height, width)),
    )
    read_image = import_module("anomalib.data.utils").read_image
    model.model.train()
    model.model.feature_extractor.eval()
    for path in request["references"]:
        model.model(model.pre_processor.transform(read_image(path, as_tensor=True)[None]))
    model.model.subsample_embedding(request["ratio"])
    model.eval()
    folder = tempfile.mkdtemp(dir=request["folder"])
    os.chdir(folder)  # the inferencer makes a folder where it is
    shapes = {_read(path).shape[:2] for path in request["pictures"]}
    # A fixed shape is the fastest. With a size and without dynamic_shapes=None, anomalib 2.7 writes
    # graphs of WideResNet50 that take batches of two alone. Its default takes any size.
    fixed = shapes.pop() if len(shapes) == 1 else None
    how = {"dynamic_shapes": None} if fixed else None
    path = model.to_openvino(folder, input_size=fixed, onnx_kwargs=how)
    runs = {}
    for precision in request["precisions"]:
        config = {"INFERENCE_PRECISION_HINT": HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
        if request["threads"]:
            config["INFERENCE_NUM_THREADS"] = str(request["threads"])
        runs[precision] = inferencer(path, device="CPU", config=config)
    return runs, list(model.model.memory_bank.shape)


def _read(path: str) -> Any:
    """Read a picture as an array of RGB bytes."""
    numpy, image = import_module("numpy"), import_module("PIL.Image")
    return numpy.asarray(image.open(path).convert("RGB"))


if __name__ == "__main__":
    main()
