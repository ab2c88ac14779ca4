"""What a detector says about a picture, in the words of the line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import AnocoError
from anoco_edge.line.core.events import Opinion, PreparedProduct, RegionWord, Verdict
from anoco_edge.line.judge.alignment import Aligner, Alignment, Pixels
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.part_codes import CodeReader
from anoco_edge.line.words.constants import Reason
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.picture_quality import PictureProblem
from anoco_edge.pipeline.runtime_choice import choose_runtime
from anoco_edge.storage.hashes import sha256_bytes

_REASONS: dict[PictureProblem, Reason] = {
    "too dark": Reason.TOO_DARK,
    "saturated": Reason.SATURATED,
    "blurred": Reason.BLURRED,
    "unlike the references": Reason.UNLIKE_REFERENCES,
}


def settings_hash(judges: Sequence[tuple[Bundle, Product]], revision: str) -> str:
    """Return the SHA-256 over bundles, products and configuration."""
    checksums = [sum_ for b, p in judges for sum_ in (b.manifest.checksum, p.checksum)]
    return sha256_bytes("\n".join([*checksums, revision]).encode())


def settings_checksum(judges: Sequence[tuple[Bundle, Product]], revision: str) -> int:
    """Return the first 16 bits of the hash of the settings, for the word SETTINGS_CHECKSUM."""
    return checksum_of(settings_hash(judges, revision))


def checksum_of(sha256: str) -> int:
    """Return the first 16 bits of a hash.

    >>> checksum_of("beef00")
    48879
    """
    return int(sha256[:4], 16)


def open_detector(
    bundle: Bundle,
    product: str | Product | None,
    engine: str = "auto",
    runtime: str = "auto",
    *,
    blocking_sync: bool = False,
    allow_random: bool = False,
) -> tuple[Detector, tuple[str, ...]]:
    """Open the detector of a capture, and say in lines for the log what runs, and why."""
    chosen = choose_runtime(bundle, runtime, engine, product)
    settings = EngineSettings(blocking_sync=blocking_sync)
    detector = Detector.open(
        bundle, product, engine, runtime=chosen.name, settings=settings, allow_random=allow_random
    )
    choices = detector.choices
    runs = (
        f"{bundle.path.name}, {detector.product.name}: runtime {chosen.name} ({chosen.reason}), "
        f"engine {choices['engine'].name}, scorer {choices['scorer'].name}"
    )
    return detector, (runs, *detector.remarks)


class CaptureJudge:
    """All that judges one capture of a product: the reader of codes, the aligner, the detector."""

    def __init__(self, detector: Detector, spec: CaptureSpec) -> None:
        self.detector = detector
        self._code = None if spec.code is None else CodeReader(spec.code)
        self._aligner = (
            None if spec.align is None else Aligner(spec.align, detector.first_reference())
        )

    def judge(self, pixels: Pixels, product: PreparedProduct, capture: int) -> Opinion:
        """Return the opinion about a picture; one without the code that it needs has none."""
        code = "" if self._code is None else self._code.read(pixels)
        if self._code is not None and self._code.settings.required and not code:
            return Opinion("no-verdict", product, Reason.PART_CODE)
        opinion = judge_picture(self.detector, pixels, product, capture, self._aligner)
        return replace(opinion, part_code=code)


def judge_picture(
    detector: Detector,
    pixels: Pixels,
    product: PreparedProduct,
    capture: int,
    aligner: Aligner | None = None,
) -> Opinion:
    """Judge the picture of a capture, counted from 0, after an aligner has moved it.

    What the detector refuses, what is outside the limits of picture quality of its product, and
    what is not found or lies partly outside the picture, has no verdict.
    """
    moved = None
    try:
        problem = detector.picture_problem(pixels)
        if problem is not None:
            return Opinion("no-verdict", product, _REASONS[problem])
        if aligner is not None:
            moved = aligner.align(pixels)
            if moved is None or not detector.sees(moved.seen):
                return Opinion("no-verdict", product, Reason.NOT_FOUND)
        found = detector.inspect(pixels if moved is None else moved.pixels)
        problem = detector.likeness_problem(found)
    except AnocoError:
        return Opinion("no-verdict", product, Reason.JUDGE_ERROR)
    if problem is not None:
        return Opinion("no-verdict", product, _REASONS[problem], found.ratio or 0.0)
    return opinion_of(found, product, capture, moved)


def opinion_of(
    found: Inspection, product: PreparedProduct, capture: int, moved: Alignment | None = None
) -> Opinion:
    """Return the opinion that follows from an inspection; without a threshold there is none.

    Regions are in pixels of the camera, also where the picture was moved.
    """
    if found.threshold is None or found.ratio is None:
        return Opinion("no-verdict", product, Reason.UNCALIBRATED)
    regions = []
    for region in found.regions:
        box = region.box if moved is None else moved.in_camera(region.box)
        left, top, right, bottom = (max(round(edge), 0) for edge in box)
        peak = round(1000 * region.peak / found.threshold)
        regions.append(RegionWord(capture + 1, left, top, right, bottom, peak))
    verdict: Verdict = "good" if found.verdict == "good" else "anomalous"
    return Opinion(verdict, product, Reason.NONE, found.ratio, tuple(regions))
