"""Measures a frame beside anomalib's PatchCore: same backbone, same pictures, in turn.

anomalib's bank is a tenth of a coreset, so ours is measured with a bank of the same size and with
the whole one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from typing_extensions import TypedDict

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.diagnostics.bench.anomalib_process import AnomalibProcess, RivalRequest
from anoco_edge.diagnostics.bench.statistics import summarize
from anoco_edge.engines import CpuPrecision, EngineSettings
from anoco_edge.engines.cpu_precision import BF16_ENGINE, why_not_here
from anoco_edge.errors import UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.machine import cores, cpu_model, versions
from anoco_edge.pipeline.base import Runtime
from anoco_edge.teaching import NewPicture, Settings, Teacher

RIVAL = "anomalib"
SETTLE_SECONDS = 0.02  # threads of the one before spin for a moment
_PACKAGES = ("numpy", "openvino")


@dataclass(frozen=True)
class RivalRow:
    """The milliseconds of a frame; `ratio` is that to anomalib's in the same precision."""

    what: str
    precision: str
    bank: str
    p50_ms: float
    p95_ms: float
    ratio: float


class RivalSettings(TypedDict):
    """Everything that the figures depend on."""

    frames: int
    pictures: int
    references: int
    runtime: str
    threads: int
    backbone: str
    input: str
    cpu: str
    cores: int
    load_before: float
    load_after: float
    versions: dict[str, str]
    rival_versions: dict[str, str]


class RivalDocument(TypedDict):
    """The figures as JSON."""

    rows: list[dict[str, object]]
    settings: RivalSettings


@dataclass(frozen=True)
class RivalBench:
    """Our frames beside anomalib's."""

    rows: tuple[RivalRow, ...]
    settings: RivalSettings

    def to_dict(self) -> RivalDocument:
        """Convert the figures to what is written as JSON."""
        return {"rows": [asdict(row) for row in self.rows], "settings": self.settings}


def bench_beside_anomalib(
    bundle: Bundle,
    product: Product,
    pictures: Sequence[Path],
    *,
    python: str,
    runtime: Runtime = "python",
    frames: int = 50,
    threads: int = 0,
    step: Callable[[], None] = lambda: None,
) -> RivalBench:
    """Run pictures through anomalib and through us in turn, in FP32 and, if it is here, BF16.

    The references are those of `product`. `python` is the interpreter that has anomalib.
    """
    precisions: tuple[CpuPrecision, ...] = ("fp32",) if why_not_here("bf16") else ("fp32", "bf16")
    folder = bundle.product_folder(product.name)
    references = [bundle.locate(reference.file, folder) for reference in product.references]
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        request = RivalRequest.of(bundle, references, pictures, precisions, threads, temporary)
        with AnomalibProcess(python, request) as rival:
            copy = Path(shutil.copytree(bundle.path, Path(temporary) / "parts.anoco"))
            shutil.rmtree(copy / "products", ignore_errors=True)
            ours = _teach(Bundle.open(copy), references, precisions, rival.bank[0])
            detectors = {
                key: Detector.open(
                    copy,
                    name,
                    BF16_ENGINE,
                    runtime=runtime,
                    settings=EngineSettings(threads=threads, cpu_precision=key[1]),
                    allow_random=True,
                )
                for key, name in ours.items()
            }
            times = _measure(rival, detectors, pictures, precisions, frames, step)
        banks = {key: _bank(detector) for key, detector in detectors.items()}
        banks |= {(RIVAL, p): "{} x {}".format(*rival.bank) for p in precisions}
        contract, backbone = bundle.manifest.input, bundle.manifest.backbone
        settings: RivalSettings = {
            "frames": frames,
            "pictures": len(pictures),
            "references": len(references),
            "runtime": runtime,
            "threads": threads or cores(),
            "backbone": f"{backbone.id} ({backbone.tap})",
            "input": f"{contract.width}x{contract.height}",
            "cpu": cpu_model(),
            "cores": cores(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "versions": versions(_PACKAGES),
            "rival_versions": dict(rival.versions),
        }
    return RivalBench(tuple(_rows(times, banks)), settings)


Key = tuple[str, CpuPrecision]


def _teach(
    bundle: Bundle, references: Sequence[Path], precisions: Sequence[CpuPrecision], patches: int
) -> dict[Key, str]:
    """Teach a product with the whole bank and one with the rival's size, in each precision."""
    names: dict[Key, str] = {}
    pictures = [NewPicture.from_file(path) for path in references]
    for precision in precisions:
        settings = EngineSettings(cpu_precision=precision)
        teacher = Teacher.open(bundle, BF16_ENGINE, settings=settings)
        for what, most in (("equal bank", patches), ("full bank", None)):
            name = f"{what.split()[0]}-{precision}"
            teacher.enroll(pictures, name, Settings({}, max_patches=most))
            names[(f"anoco-edge, {what}", precision)] = name
    return names


def _measure(
    rival: AnomalibProcess,
    detectors: dict[Key, Detector],
    pictures: Sequence[Path],
    precisions: Sequence[CpuPrecision],
    frames: int,
    step: Callable[[], None],
) -> dict[Key, list[float]]:
    if frames < 1 or not pictures:
        raise UsageError("there is nothing to measure", hint="give 1 frame or more and a picture")
    decoded = [read_picture(path) for path in pictures]
    contestants: list[Key] = [(RIVAL, p) for p in precisions] + list(detectors)
    times: dict[Key, list[float]] = {key: [] for key in contestants}
    for detector in detectors.values():
        detector.inspect(decoded[0])
    for number in range(frames):
        # Each frame begins with another one, so that nobody always runs after the same rival.
        first = number % len(contestants)
        for key in contestants[first:] + contestants[:first]:
            time.sleep(SETTLE_SECONDS)
            picture = number % len(decoded)
            if key[0] == RIVAL:
                times[key].append(rival.run(picture, key[1]))
                continue
            start = time.perf_counter()
            detectors[key].inspect(decoded[picture])
            times[key].append((time.perf_counter() - start) * 1000)
        step()
    return times


def _bank(detector: Detector) -> str:
    rows, dim = detector.bank.references.features.shape
    return f"{rows} x {dim}"


def _rows(times: dict[Key, list[float]], banks: dict[Key, str]) -> list[RivalRow]:
    rows = []
    for precision in dict.fromkeys(key[1] for key in times):
        theirs = summarize(times[(RIVAL, precision)]).p50
        for (what, own), values in times.items():
            if own == precision:
                found = summarize(values)
                rows.append(
                    RivalRow(
                        f"{RIVAL} PatchCore" if what == RIVAL else what,
                        precision,
                        banks[(what, precision)],
                        round(found.p50, 2),
                        round(found.p95, 2),
                        round(found.p50 / theirs, 3),
                    )
                )
    return rows
