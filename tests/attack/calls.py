"""Functions that a fork runs in place of a command.

They are an export without torch, storing a plan, a C program that teaches, and writers with
deliberate faults (for test_attack_harness.py).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from contextlib import suppress
from ctypes import c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from tiny_bundle import STRIDE, textured_picture, tiny_backbone

from anoco_edge.errors import AnocoError

NEW_NOTICE = b"The second export.\n"
WORDS = ("export", "--backbone", "efficientnet-lite0", "--out", "line.anoco", "--size", "64")


def export_tiny(*options: str) -> None:
    """Run `anoco-edge export` with the tiny backbone in place of torch."""
    import anoco_edge_export.bundle as exporting
    from anoco_edge.cli import main

    exporting.export_backbone = _tiny_backbone  # type: ignore[assignment]
    sys.argv = ["anoco-edge", *WORDS, *options]
    main()


def _tiny_backbone(_name: str, workspace: Path, *_: Any, **__: Any) -> Any:
    from tiny_bundle import selftest_content

    from anoco_edge.bundle import InputContract
    from anoco_edge.bundle.schema import Backbone, Weights
    from anoco_edge_export.export import ExportedBackbone

    model = tiny_backbone(64, 64, 8)
    graph = workspace / "backbone.onnx"
    graph.write_bytes(model)
    weights = Weights(source="tests/tiny_bundle.py", sha256="0" * 64, license="Apache-2.0")
    named = {"id": "tiny", "architecture": "tiny", "tap": "features", "feature_norm": "layernorm"}
    return ExportedBackbone(
        backbone=Backbone(**named, pooling="none", weights=weights),
        input=InputContract(width=64, height=64, stride=STRIDE, rows=4, cols=4, dim=8),
        parity=_parity(),
        files={
            "backbone.onnx": graph,
            "selftest.safetensors": selftest_content(model, 64, 64),
            "LICENSES/NOTICE": NEW_NOTICE,
        },
        tools={},
        terms="",
        variant="",
        layers=(1, 1),
    )


def _parity() -> Any:
    """Return a parity report for `export` to show, although nothing was compared."""
    from anoco_edge.bundle.parity_report import (
        ParityCheck,
        ParityFigures,
        ParityReport,
        WorstPatches,
    )

    limits = ("min_cosine", "mean_cosine", "max_norm_error", "min_energy_spearman")
    return ParityReport(
        precision="fp32",
        passed=True,
        against="nothing",
        pictures=(),
        patches=16,
        limits=dict.fromkeys((*limits, "max_top_energy_error"), 1.0),
        checks=(ParityCheck("none", ParityFigures(1, 1, 1, 1, 1), WorstPatches("", "")),),
        device="not run",
    )


def store_plan(content: str) -> None:
    """Do the end of `anoco-edge build`: store the plan and its record in the cache."""
    from anoco_edge.bundle import InputContract
    from anoco_edge.plans import cache
    from anoco_edge.plans.tensorrt_builder import BuiltPlan, backbone_profile

    contract = InputContract(width=64, height=64, stride=16, rows=4, cols=4, dim=8)
    here = cache.Fingerprint(version="10.3.0", gpu="Orin", capability="sm87", driver="540.4.0")
    built = BuiltPlan(content.encode() * 1000, "tensorrt", here.version, (), 1.0, 1.0)
    with _one_line():
        cache.store_plan(
            built,
            name="tiny",
            graph="0" * 64,
            fingerprint=here,
            profile=backbone_profile(contract),
        )


class _one_line:
    """Print an AnocoError in one line, as the command line does."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, AnocoError):
            sys.stderr.write(f"anoco-edge: {error}\n")
            sys.exit(error.exit_code)


# ---- a C program


_kept: list[Any] = []  # a backend is registered once and never removed


def native_enroll(*seeds: str) -> None:
    """Enroll two pictures with `anoco_enroll`, as a line controller does."""
    from native_controller import Controller

    register_backend(Path("line.anoco/backbone.onnx").read_bytes())
    with _one_line():
        controller = Controller(Path("line.anoco"), "onnx-callback")
        pictures = [textured_picture(int(seed)) for seed in seeds]
        controller.enroll(pictures, [f"native{seed}.png" for seed in seeds], None)
        controller.close()


def sign() -> None:
    """Sign the bundle as `anoco-edge sign` does, with a key that no file holds."""
    from signed_bundle import ENGINEER

    from anoco_edge.bundle import Bundle
    from anoco_edge.bundle.signatures.signing import sign_bundle

    with _one_line():
        sign_bundle(Bundle.open("line.anoco"), ENGINEER)


def signed_enroll(*seeds: str) -> None:
    """Enroll pictures as the worker of a station does, which signs every change."""
    from signed_bundle import picture, signing_teacher

    with _one_line():
        signing_teacher(Path("line.anoco")).enroll([picture(int(seed)) for seed in seeds])


def register_backend(model: bytes) -> None:
    """Register ONNX Runtime as the native library's backend; it opens faster than OpenVINO."""
    import onnxruntime
    from native_backend import CLOSE, OPEN, REQUEST, RUN, Backend

    from anoco_edge.native.library import check, load_library

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    answer: list[Any] = [None]

    def made(out: Any) -> int:
        out[0] = 1
        return 0

    def run(_request: Any, pixels: int, features: Any, _text: Any, _size: int) -> int:
        given = np.frombuffer(ctypes.string_at(pixels, 64 * 64 * 3), np.uint8)
        found = session.run(["features"], {"pixels": given.reshape(1, 64, 64, 3)})[0]
        answer[0] = np.ascontiguousarray(found, np.float32)
        features[0] = answer[0].ctypes.data
        return 0

    struct = Backend(
        name=b"onnx-callback",
        open=OPEN(lambda _u, _m, out, _t, _s: made(ctypes.cast(out, ctypes.POINTER(c_void_p)))),
        close=CLOSE(lambda _: None),
        create_request=REQUEST(lambda _e, out, _t, _s: made(out)),
        destroy_request=CLOSE(lambda _: None),
        run=RUN(run),
    )
    _kept.append(struct)
    library = load_library()
    check(library, library.anoco_register_backend(ctypes.byref(struct)))


# ---- writers that are wrong, for the tests of the campaigns themselves


def _put(name: str, *, sync: bool = True) -> None:
    with Path(name).open("wb") as stream:
        stream.write(b"new" * 1000)
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


def _sync_folder() -> None:
    handle = os.open(".", os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def write_well() -> None:
    """Make the data durable, then the name, then the folder."""
    try:
        _put("toy.tmp")
        Path("toy.tmp").replace("toy")
    except OSError as error:
        with suppress(OSError):
            Path("toy.tmp").unlink(missing_ok=True)
        _fail(f"{error.strerror}; nothing was changed")
    try:
        _sync_folder()
    except OSError as error:
        _fail(f"{error.strerror}; it is committed but may not survive a power cut")


def _fail(message: str) -> None:
    sys.stderr.write(f"anoco-edge: cannot write toy: {message}\n")
    sys.exit(1)


def write_in_place() -> None:
    """Overwrite the only copy."""
    _put("toy")


def write_without_fsync() -> None:
    """Skip the fsync, so that the name may reach the disk before the data."""
    _put("toy.tmp", sync=False)
    Path("toy.tmp").replace("toy")
    _sync_folder()


def write_without_folder_fsync() -> None:
    """Report success while the name may still be lost."""
    _put("toy.tmp")
    Path("toy.tmp").replace("toy")


def write_after_removing() -> None:
    """Leave a moment in which there is no file at all."""
    _put("toy.tmp")
    Path("toy").unlink()
    Path("toy.tmp").rename("toy")
    _sync_folder()


def write_leaving_temporaries() -> None:
    """Never delete the temporary files of an earlier run that was killed."""
    name = f".toy-{os.getpid()}"
    _put(name)
    Path(name).replace("toy")
    _sync_folder()


def write_ignoring_errors() -> None:
    """Report success whatever the disk reports."""
    with suppress(OSError):
        _put("toy.tmp")
        Path("toy.tmp").replace("toy")


def write_lying() -> None:
    """Report that nothing was changed after the name has changed."""
    try:
        _put("toy.tmp")
        Path("toy.tmp").replace("toy")
        _sync_folder()
    except OSError as error:
        Path("toy.tmp").unlink(missing_ok=True)
        _fail(f"{error.strerror}; nothing was changed")


def write_with_traceback() -> None:
    """Let the error through."""
    try:
        _put("toy.tmp")
    except OSError as error:
        raise RuntimeError("unexpected") from error
    Path("toy.tmp").replace("toy")
    _sync_folder()


# ---- for the tests of the shim


def change_everything() -> None:
    """Make each kind of call once, in the ways that Python and C programs do."""
    os.mkdir("folder")  # noqa: PTH102
    folder = os.open("folder", os.O_RDONLY)
    file = os.open("a", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder)
    os.write(file, b"1234")
    os.fsync(file)
    os.rename("a", "b", src_dir_fd=folder, dst_dir_fd=folder)
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = 316 if platform.machine() == "x86_64" else 276
    libc.syscall(renameat2, folder, b"b", folder, b"c", 0)
    os.ftruncate(file, 2)
    os.fchmod(file, 0o644)
    os.link("c", "d", src_dir_fd=folder, dst_dir_fd=folder)
    os.symlink("c", "e", dir_fd=folder)
    os.pwrite(file, b"5", 0)
    os.unlink("d", dir_fd=folder)
    os.remove("folder/e")  # noqa: PTH107


def write_elsewhere(path: str) -> None:
    """Write a file outside the attacked folder."""
    Path(path).write_bytes(b"data")


def tell_time() -> None:
    """Read the wall clock three times."""
    for _ in range(3):
        print(int(time.time()))
