"""What the worker does for each kind of job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from anoco_edge.bundle import Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.errors import UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.judge.alignment import Aligner, Pixels
from anoco_edge.line.replay import stored_capture
from anoco_edge.line.signed_bundles import trust_of
from anoco_edge.station.jobs.job_models import (
    CommitRequest,
    DryRunRequest,
    ExplanationRequest,
    JobRequest,
    ThresholdChange,
)
from anoco_edge.station.jobs.shadow_task import judge_parts
from anoco_edge.station.jobs.worker_messages import WorkerSetup
from anoco_edge.station.parts.captures import CapturePlace, find_capture
from anoco_edge.station.parts.history import History
from anoco_edge.station.products.changes import ChangeOutcome, PictureShelf, carry_out, outcome_of
from anoco_edge.station.products.explanation import Explanation, explain
from anoco_edge.station.products.past_parts import (
    DryRun,
    JudgePicture,
    all_generations,
    compare_pictures,
    compare_thresholds,
    past_captures,
    threshold_note,
)
from anoco_edge.teaching import Draft, ProductChange, Teacher
from anoco_edge.teaching.drafts import draft_patch_mask

Tick = Callable[[float, str], None]
"""Says how far a job is, from 0 to 1, and with what; ends the job if it was cancelled."""


class Tasks:
    """Does jobs for one station. What an engine needs long to open is kept for the next job."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._config = StationConfig.model_validate_json(setup.config)
        self._base, self._folder = Path(setup.base), Path(setup.folder)
        self._trust = trust_of(self._config, self._base)
        names = {product.number: product.name for product in self._config.products}
        self.history = History(self._folder, names)
        self._teacher: tuple[tuple[str, str], Teacher] | None = None
        self._detector: tuple[tuple[str, str, str], Detector] | None = None
        self._candidate: tuple[str, JudgePicture] | None = None
        self._tick: Tick = lambda _progress, _note: None
        self._steps, self._step = 1, 0

    def do(self, request: JobRequest, tick: Tick) -> BaseModel:
        """Do a job and return its result."""
        self._tick, self._steps, self._step = tick, 1, 0
        if isinstance(request, ExplanationRequest):
            return self._explain(request)
        if isinstance(request, DryRunRequest):
            return self._dry_run(request)
        if isinstance(request, CommitRequest):
            return self._commit(request)
        return judge_parts(self, request, tick)

    # ---- explanations

    def _explain(self, request: ExplanationRequest) -> Explanation:
        self._tick(0.0, "reading the picture")
        stored = stored_capture(self._folder, self._base, request.uid, request.number)
        return explain(request.uid, request.number, stored, self._open_detector)

    def _open_detector(self, bundle: Bundle, product: Product) -> Detector:
        key = (str(bundle.path), bundle.manifest.checksum, product.checksum)
        if self._detector is None or self._detector[0] != key:
            self._detector = None  # the memory first
            self._detector = key, Detector.open(bundle, product, self._setup.engine)
        return self._detector[1]

    # ---- changes

    def _commit(self, request: CommitRequest) -> ChangeOutcome:
        place = self.place(request.product, request.capture)
        change = self._change(request, place, commit=True)
        return outcome_of(change)

    def _dry_run(self, request: DryRunRequest) -> DryRun:
        place = self.place(request.product, request.capture)
        past = past_captures(self.history, request.product, request.capture, request.last)
        change = self._change(request, place, commit=False)
        outcome, bundle = outcome_of(change), place.bundle()
        current = place.require_product(bundle)
        if isinstance(request.change, ThresholdChange):
            value = change.product.threshold.value
            if value is None:
                raise UsageError("there is no threshold then", hint="calibrate the product")
            generations = all_generations(place, bundle)
            compared = compare_thresholds(past, generations, current, value, request.capture)
            return compared.dry_run(outcome, "arithmetic", threshold_note(current))
        compared = compare_pictures(
            past,
            self._folder,
            current.generation,
            self.judge_of(place, bundle, current_draft(bundle, current)),
            self.judge_of(place, bundle, change.require_draft()),
            request.capture,
            lambda count: self._tick(count / max(len(past), 1), f"{count} of {len(past)} parts"),
        )
        return compared.dry_run(outcome, "inspection")

    def _change(
        self, request: CommitRequest | DryRunRequest, place: CapturePlace, *, commit: bool
    ) -> ProductChange:
        bundle = place.bundle()
        teacher = self.teacher(bundle)
        if self._trust is not None and commit:
            bundle.signer = teacher.bundle.signer = self._trust.signer()
        product = place.product(bundle)
        shelf = PictureShelf(self._folder, self._aligner(place, bundle, product))
        self._steps = 2 + (len(product.references) if product else 0)
        return carry_out(
            request.change,
            place,
            bundle,
            teacher,
            shelf,
            expected=request.expected,
            commit=commit,
        )

    # ---- what several of them need

    def place(self, number: int, capture: int) -> CapturePlace:
        """Return a capture of a product of the station."""
        return find_capture(self._config, self._base, number, capture)

    @property
    def folder(self) -> Path:
        """The folder of the data bases and the pictures."""
        return self._folder

    def teacher(self, bundle: Bundle) -> Teacher:
        """Open the teacher of a bundle, or return the one that was open last."""
        key = (str(bundle.path), bundle.manifest.checksum)
        if self._teacher is None or self._teacher[0] != key:
            self._tick(0.0, "opening the backbone")
            self._teacher = None
            opened = Teacher.open(
                bundle, self._setup.engine, progress=self._note_step, on_wait=self._note_step
            )
            self._teacher = key, opened
        return self._teacher[1]

    def judge_candidate(
        self, place: CapturePlace, name: str, candidate: DryRunRequest | Bundle
    ) -> JudgePicture:
        """Return what judges as the candidate of a trial, which is kept for the next parts."""
        if self._candidate is None or self._candidate[0] != name:
            bundle = candidate if isinstance(candidate, Bundle) else place.bundle()
            if isinstance(candidate, DryRunRequest):
                draft = self._change(candidate, place, commit=False).require_draft()
            else:
                draft = current_draft(bundle, place.require_product(bundle))
            self._candidate = name, self.judge_of(place, bundle, draft)
        return self._candidate[1]

    def judge_of(self, place: CapturePlace, bundle: Bundle, draft: Draft) -> JudgePicture:
        """Return a function that judges pictures of a capture as a draft of its product would."""
        threshold = draft.product.threshold.value
        if threshold is None:
            raise UsageError(
                "there would be no threshold", hint="calibrate the product with good parts"
            )
        judge = self.teacher(bundle).judge(draft)
        align = self._aligner(place, bundle, place.product(bundle))

        def judge_picture(pixels: Pixels, name: str) -> tuple[float, str] | None:
            moved = pixels if align is None else align(pixels)
            if moved is None:
                return None
            score, verdict = judge(moved, name)
            return score / threshold, verdict

        return judge_picture

    def _aligner(
        self, place: CapturePlace, bundle: Bundle, product: Product | None
    ) -> Callable[[Pixels], Pixels | None] | None:
        if place.spec.align is None or product is None or not product.references:
            return None
        aligner = Aligner(place.spec.align, first_reference(bundle, product))

        def moved(pixels: Pixels) -> Pixels | None:
            found = aligner.align(pixels)
            return None if found is None else found.pixels

        return moved

    def _note_step(self, what: str) -> None:
        self._step += 1
        self._tick(min(self._step / max(self._steps, 1), 0.9), what)


def current_draft(bundle: Bundle, product: Product) -> Draft:
    """Return a generation that is in the bundle as a draft, to judge pictures with it."""
    mask = draft_patch_mask(bundle, product, {})
    return Draft(product, bundle.bank(product), mask, {}, bundle.baseline(product))


def first_reference(bundle: Bundle, product: Product) -> Pixels:
    """Return the picture that an alignment refers to."""
    reference = product.references[0]
    data = bundle.read(reference.file, bundle.product_folder(product.name))
    return decode_picture(data, reference.name)
