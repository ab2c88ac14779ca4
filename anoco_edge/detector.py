"""The detector, which inspects pictures for one product of a bundle with one runtime."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from anoco_edge.bundle import Bank, Bundle, Product
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import AnocoError, BundleError, EngineError, UsageError
from anoco_edge.images.decode import check_rgb, decode_picture, read_picture
from anoco_edge.images.frame import Frame
from anoco_edge.images.preprocess import Mask
from anoco_edge.pipeline.base import Pixels, ProductSnapshot, Runtime, open_pipeline
from anoco_edge.pipeline.inspection import Evidence, Inspection
from anoco_edge.pipeline.picture_quality import (
    PictureGauge,
    PictureProblem,
    likeness,
    measured_problem,
)

Picture: TypeAlias = "Pixels | str | os.PathLike[str]"


class Detector:
    """Inspects pictures for one product of a bundle. It is immutable, so threads may share it.

    >>> Detector.open("missing.anoco")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """

    def __init__(
        self,
        bundle: Bundle,
        product: str | Product | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        runtime: Runtime = "python",
        settings: EngineSettings | None = None,
        threshold: float | None = None,
    ) -> None:
        if runtime == "native" and bundle.manifest.input.pixels != "uint8":
            raise UsageError(
                f"{bundle.path.name} takes float32 pixels, for DeepStream, and the native runtime "
                "gives uint8",
                hint="use `runtime='python'`, or a bundle that was exported without `pixels`",
            )
        snapshot = ProductSnapshot.of(bundle, product, threshold)
        self.bundle = bundle
        self.product = snapshot.product
        self.threshold = snapshot.threshold
        self.threshold_kind = snapshot.threshold_kind
        self.runtime = runtime
        self._snapshot = snapshot
        whole = bundle.manifest.input.tiled(self.product.tiles)
        self._gauge = PictureGauge(whole, snapshot.patch_mask)
        folder = bundle.product_folder(self.product.name)
        files = {reference.name: reference.file for reference in self.product.references}
        # A missing reference picture raises its error now, not when a rejected part needs it.
        for file in files.values():
            bundle.locate(file, folder)
        # A cache of a method would keep the detector, its bank and its device until the garbage
        # collector comes, and a line changes products long before that.
        self._read_reference = lru_cache(maxsize=4)(partial(_read_reference, bundle, folder, files))
        self._pipeline = open_pipeline(
            runtime, snapshot, engine, scorer, settings or EngineSettings()
        )
        self.choices = self._pipeline.choices
        self.selftest = self._pipeline.selftest

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Bundle,
        product: str | Product | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        runtime: Runtime = "python",
        settings: EngineSettings | None = None,
        threshold: float | None = None,
        allow_random: bool = False,
    ) -> Detector:
        """Open a detector for a product of a bundle, which is given by its path or already open.

        A `Product` in place of a name opens that generation, which need not be the current one. A
        threshold given here overrides that of the product. `runtime="native"` inspects entirely
        in libanoco_edge, with OpenVINO or TensorRT and the library's own scorer.
        """
        bundle = path if isinstance(path, Bundle) else Bundle.open(path)
        if bundle.manifest.backbone.weights.random and not allow_random:
            raise BundleError(
                f"{bundle.path} was exported with random weights, so its verdicts mean nothing",
                hint="export it with real weights (to test the machinery pass `allow_random=True`)",
            )
        return cls(
            bundle, product, engine, scorer, runtime=runtime, settings=settings, threshold=threshold
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What runs slower than it could, and why.

        Some remarks are known only after the first picture.
        """
        return self._pipeline.remarks

    @property
    def bank(self) -> Bank:
        """The reference bank, read on first use because the native runtime has its own copy."""
        return self._snapshot.bank

    def inspect(self, image: Picture) -> Inspection:
        """Inspect one picture: an HxWx3 uint8 RGB array, or a path."""
        return self.inspect_batch([image])[0]

    def inspect_batch(self, images: Sequence[Picture]) -> list[Inspection]:
        """Inspect pictures through one run of the backbone, whose time is shared out evenly."""
        frames = [self._check(_frame_of(image)) for image in images]
        for frame in frames:
            if frame.error is not None:
                raise frame.error
        results = []
        for result in self._pipeline.inspect(frames):
            if isinstance(result, AnocoError):
                raise result
            results.append(result)
        return results

    def inspect_many(
        self, images: Iterable[Picture], batch: int = 4
    ) -> Iterator[Inspection | AnocoError]:
        """Inspect pictures in batches; one that cannot be inspected gives its error instead."""
        if batch < 1:
            raise UsageError(f"batch is {batch}", hint="it must be 1 or more")
        waiting = iter(images)
        while group := list(islice(waiting, batch)):
            yield from self.inspect_frames([_frame_of(image) for image in group])

    def inspect_frames(self, frames: Sequence[Frame]) -> list[Inspection | AnocoError]:
        """Inspect the frames of a source through one run of the backbone.

        A frame that was not read, or that cannot be inspected, gives its error in place of an
        inspection; the others are inspected all the same.
        """
        checked = [self._check(frame) for frame in frames]
        results = iter(self._inspect_readable([f for f in checked if f.error is None]))
        return [next(results) if frame.error is None else frame.error for frame in checked]

    def _inspect_readable(self, frames: Sequence[Frame]) -> list[Inspection | AnocoError]:
        try:
            return self._pipeline.inspect(frames)
        except AnocoError as error:
            if len(frames) == 1:
                return [error]
            # One frame can make the run of its whole batch fail, so each gets a run of its own.
            return [self._inspect_readable([frame])[0] for frame in frames]

    def _check(self, frame: Frame) -> Frame:
        """Check the pixels and the shape of a frame, and return it with the error if it has one."""
        if frame.rgb is None:
            return frame
        name = frame.source or "the picture"
        try:
            rgb = check_rgb(frame.rgb, name)
            self._snapshot.patch_mask.check_size(rgb.shape[1], rgb.shape[0], name)
        except AnocoError as error:
            return replace(frame, rgb=None, error=error)
        return replace(frame, rgb=rgb)

    def picture_problem(self, rgb: Pixels) -> PictureProblem | None:
        """Say why a picture should have no verdict: it is darker, more saturated or less sharp than
        the product's limits allow. None if nothing is wrong, or if the product has no limits.

        `inspect` scores such a picture all the same; a line asks first.
        """
        limits = self.product.picture_limits
        return None if limits is None else measured_problem(self._gauge.measure(rgb), limits)

    def likeness_problem(self, found: Inspection) -> PictureProblem | None:
        """Say whether an inspected picture shows nothing like the references."""
        limits = self.product.picture_limits
        if limits is None or limits.min_likeness is None:
            return None
        like = likeness(found.similarity, found.scored)
        return "unlike the references" if like < limits.min_likeness else None

    def first_reference(self) -> Pixels:
        """Return the picture of the first reference, which regions and alignment refer to."""
        return self._read_reference(self.product.references[0].name)

    def sees(self, seen: Mask) -> bool:
        """Whether all that is inspected lies in the pixels of a picture that are `seen`."""
        return self._snapshot.patch_mask.is_covered(seen)

    def probe_engine(self) -> None:
        """Inspect a reference picture, which the engine has processed before.

        If the engine fails on that too, the error says that the fault lies with the engine and
        not with a picture.
        """
        try:
            self.inspect(self.first_reference())
        except EngineError as error:
            raise EngineError(
                f"the engine stopped working, references fail too: {error.what}", hint=error.hint
            ) from None
        except AnocoError:
            pass  # the reference picture itself could not be inspected, so the engine did not run

    def reference_picture(self, evidence: Evidence) -> Pixels:
        """Return the reference picture that a piece of evidence points at."""
        return self._read_reference(evidence.reference)


def _read_reference(
    bundle: Bundle, folder: Path, files: Mapping[str, FileRecord], name: str
) -> Pixels:
    return decode_picture(bundle.read(files[name], folder), name)


def _frame_of(image: Picture) -> Frame:
    """Make a frame of an array, or read one from a file."""
    named = isinstance(image, (str, os.PathLike))
    name = str(image) if named else ""
    start = time.perf_counter()
    try:
        rgb = read_picture(Path(name)) if named else check_rgb(image, "the picture")
    except AnocoError as error:
        return Frame(name, 0, None, error)
    return Frame(name, 0, rgb, decode_ms=(time.perf_counter() - start) * 1000)


@dataclass(frozen=True)
class DetectorConfig:
    """How to open a detector, as plain values, so that another process can open the same one."""

    bundle: str
    product: str | None = None
    engine: str = "auto"
    scorer: str = "auto"
    runtime: Runtime = "python"
    settings: EngineSettings = field(default_factory=EngineSettings)
    threshold: float | None = None
    allow_random: bool = False

    def detector(self, opened: Bundle | None = None) -> Detector:
        """Open the detector; `opened` is its bundle, where the caller has opened it already."""
        return Detector.open(
            opened or self.bundle,
            self.product,
            self.engine,
            self.scorer,
            runtime=self.runtime,
            settings=self.settings,
            threshold=self.threshold,
            allow_random=self.allow_random,
        )
