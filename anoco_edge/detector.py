"""The detector: one product of a bundle, one runtime. Picture in, inspection out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from anoco_edge.bundle import Bundle
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import AnocoError, BundleError, EngineError, UsageError
from anoco_edge.images.decode import check_rgb, decode_picture, read_picture
from anoco_edge.pipeline.base import InputPicture, Pixels, ProductSnapshot, Runtime, open_pipeline
from anoco_edge.pipeline.inspection import Evidence, Inspection

Picture: TypeAlias = "Pixels | str | os.PathLike[str]"


class Detector:
    """Inspects pictures for one product of a bundle. Immutable: share it between threads.

    >>> Detector.open("missing.anoco")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.BundleError: there is no bundle at missing.anoco; make one with: ...
    """

    def __init__(
        self,
        bundle: Bundle,
        product: str | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        runtime: Runtime = "python",
        settings: EngineSettings | None = None,
        threshold: float | None = None,
    ) -> None:
        snapshot = ProductSnapshot.of(bundle, product, threshold)
        self.bundle = bundle
        self.product = snapshot.product
        self.bank = snapshot.bank
        self.threshold = snapshot.threshold
        self.threshold_kind = snapshot.threshold_kind
        self.runtime = runtime
        self._patch_mask = snapshot.patch_mask
        folder = bundle.product_folder(self.product.name)
        self._references = {r.name: r for r in self.product.references}
        for reference in self._references.values():  # missing evidence shows now, not at a reject
            bundle.locate(reference.file, folder)
        self._read_reference = lru_cache(maxsize=4)(self._load_reference)
        self._pipeline = open_pipeline(
            runtime, snapshot, engine, scorer, settings or EngineSettings()
        )
        self.choices = self._pipeline.choices
        self.selftest = self._pipeline.selftest

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Bundle,
        product: str | None = None,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        runtime: Runtime = "python",
        settings: EngineSettings | None = None,
        threshold: float | None = None,
        allow_random: bool = False,
    ) -> Detector:
        """Open a bundle, by its path unless it is open already. A threshold given here overrides
        the product's own.

        `runtime="native"` inspects wholly in libanoco_edge, with OpenVINO and its own scorer.
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
        """What runs slower than it could, and why; some of it is known after the first picture."""
        return self._pipeline.remarks

    def inspect(self, image: Picture) -> Inspection:
        """Inspect one picture: an HxWx3 uint8 RGB array, or a path."""
        return self.inspect_batch([image])[0]

    def inspect_batch(self, images: Sequence[Picture]) -> list[Inspection]:
        """Inspect pictures through one run of the backbone, its time shared out evenly."""
        results = []
        for result in self._pipeline.inspect([self._load(image) for image in images]):
            if isinstance(result, AnocoError):
                raise result
            results.append(result)
        return results

    def inspect_many(
        self, images: Iterable[Picture], batch: int = 4
    ) -> Iterator[Inspection | AnocoError]:
        """Inspect in batches; a picture that cannot be inspected gives its error instead."""
        if batch < 1:
            raise UsageError(f"batch is {batch}", hint="it must be 1 or more")
        waiting = iter(images)
        while group := list(islice(waiting, batch)):
            outcome: list[Inspection | AnocoError | None] = [None] * len(group)
            loaded = []
            for k, image in enumerate(group):
                try:
                    loaded.append((k, self._load(image)))
                except AnocoError as error:
                    outcome[k] = error
            results = self._pipeline.inspect([item for _, item in loaded])
            for (k, _), result in zip(loaded, results, strict=True):
                outcome[k] = result
            yield from (o for o in outcome if o is not None)

    def probe_engine(self) -> None:
        """Inspect a reference picture, which the engine has seen before; where it fails on that
        too, EngineError says that it is the engine and not a picture."""
        try:
            self.inspect(self._read_reference(self.product.references[0].name))
        except EngineError as error:
            raise EngineError(
                f"the engine stopped working, references fail too: {error.what}", hint=error.hint
            ) from None
        except AnocoError:
            pass  # of the reference picture alone: the engine did not get to run

    def _load(self, image: Picture) -> InputPicture:
        start = time.perf_counter()
        if isinstance(image, (str, os.PathLike)):
            name, rgb = str(image), read_picture(Path(image))
        else:
            name, rgb = "", check_rgb(image, "the picture")
        self._patch_mask.check_size(rgb.shape[1], rgb.shape[0], name or "the picture")
        return InputPicture(name, rgb, (time.perf_counter() - start) * 1000)

    def _load_reference(self, name: str) -> Pixels:
        folder = self.bundle.product_folder(self.product.name)
        return decode_picture(self.bundle.read(self._references[name].file, folder), name)

    def reference_picture(self, evidence: Evidence) -> Pixels:
        """The reference picture that a piece of evidence points at."""
        return self._read_reference(evidence.reference)


@dataclass(frozen=True)
class DetectorConfig:
    """How a detector is opened, as plain values: another process can open the same."""

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
