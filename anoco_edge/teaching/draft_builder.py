"""Computes the bank and the threshold of a generation, before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anoco_edge.bundle import Bank, Bundle, Product, Reference, Threshold
from anoco_edge.bundle.schema import Calibration, CalibrationPicture, FileRecord
from anoco_edge.engines import Engine
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.bank_builder import BANK_FIELDS, BankBuild, BankBuilder, Pixels
from anoco_edge.teaching.burst_detection import SIDE, PartMatcher, thumbnail
from anoco_edge.teaching.calibrated_threshold import (
    ThresholdUpdate,
    calibrate_threshold,
    threshold_from_pictures,
    update_threshold,
    without_references,
)
from anoco_edge.teaching.calibration_plan import plan_calibration
from anoco_edge.teaching.calibration_set import (
    CalibrationFindings,
    CalibrationRequest,
    examine_pictures,
    kept_files,
    new_calibration,
)
from anoco_edge.teaching.draft_scorer import DraftScorer
from anoco_edge.teaching.drafts import Draft, Settings, draft_patch_mask
from anoco_edge.teaching.new_pictures import NewPicture

# These settings give scores their scale, so a threshold set by hand fits no other values.
SCALE_FIELDS = ("lam", "floor", "metric", "pooling", "tta", "rotations", "tiles")
# All settings that the score of a picture depends on, beside the bank.
SCORE_FIELDS = (*SCALE_FIELDS, "views", "region", "mask")


class DraftBuilder:
    """Builds one generation of one product. It writes nothing into the bundle.

    `draft` is the product with its new settings and references, still without bank and threshold;
    `files` are its new files. `pictures` are references that are not in the bundle yet.
    """

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
        scorer: str,
        draft: Product,
        files: Mapping[str, bytes],
        pictures: Sequence[NewPicture] = (),
        *,
        progress: Callable[[str], None],
        thinning: Callable[[int, int], None],
    ) -> None:
        self._bundle = bundle
        self._engine = engine
        self._scorer = scorer
        self._draft = draft
        self._files = dict(files)
        self._new = {p.pixels: p for p in pictures}
        self._progress = progress
        self._thinning = thinning
        self._patch_mask = draft_patch_mask(bundle, draft, files)

    def build(self, old: Product | None, settings: Settings) -> Draft:
        """Compute the bank, and the threshold that follows from it and from the settings.

        `old` is the generation before; None for the first one.
        """
        self._check_sizes()
        if not self._draft.references:
            empty = self._draft.model_copy(update={"dropped_patches": 0})
            return self._finish(empty, None, without_references(empty))
        built = self._build_bank(old)
        data = built.bank.to_bytes()
        path = f"bank-{self._draft.generation}.safetensors"
        record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
        self._files[path] = data
        product = built.recorded_in(self._draft).model_copy(update={"bank": record})
        update = self._update_threshold(product, old, settings, built.bank)
        return self._finish(product, built.bank, update)

    def build_without_threshold(self) -> Draft:
        """Compute the bank alone."""
        self._check_sizes()
        built = self._build_bank(None)
        product = built.recorded_in(self._draft)
        return Draft(product, built.bank, self._patch_mask, self._files)

    def calibrate(self, old: Product, bank: Bank, request: CalibrationRequest) -> Draft:
        """Compute a calibrated threshold for the bank of the generation before."""
        matcher = self._matcher()
        calibration = new_calibration(old, matcher, request)
        plan = plan_calibration(self._draft, self._patch_mask, calibration)
        given = {p.pixels: p for p in request.pictures}
        thumbnails = [given[p.pixels].thumbnail for p in calibration.pictures]
        findings = examine_pictures(self._draft, matcher, calibration, thumbnails)

        def load(picture: CalibrationPicture) -> Pixels:
            self._progress(picture.name)
            return given[picture.pixels].rgb

        scorer = self._draft_scorer(self._draft, bank)
        update = calibrate_threshold(scorer, plan, load, findings)
        self._files |= kept_files(update.calibration, request.pictures)
        return self._finish(self._draft.model_copy(update={"bank": old.bank}), bank, update)

    def _check_sizes(self) -> None:
        for reference in self._draft.references:
            self._patch_mask.check_size(reference.width, reference.height, reference.name)

    def _build_bank(self, old: Product | None) -> BankBuild:
        """Build the bank. Patches that the old bank holds are taken from there, unless a setting
        that they depend on has changed; a thinned bank is only taken as a whole."""
        reusable: dict[str, Bank] = {}
        if old is not None and old.bank and _agree(old, self._draft, BANK_FIELDS):
            bank = self._bundle.bank(old)
            if [r.pixels for r in old.references] == [r.pixels for r in self._draft.references]:
                return BankBuild(bank, old.dropped_patches, self._draft.coreset)
            reusable = {r.pixels: bank.only([k]) for k, r in enumerate(old.references)}
        builder = BankBuilder(
            self._engine,
            self._bundle.manifest.input,
            self._draft,
            self._patch_mask,
            self._load_reference,
            self._progress,
            self._thinning,
        )
        return builder.build(reusable)

    def _update_threshold(
        self, draft: Product, old: Product | None, settings: Settings, bank: Bank
    ) -> ThresholdUpdate:
        draft = _with_requested_threshold(draft, old, settings)
        scorer = self._draft_scorer(draft, bank)
        if old is not None and _scores_are_equal(old, draft):
            grid, calibration = self._bundle.baseline(old), draft.calibration
            if settings.threshold != 0:
                return ThresholdUpdate(draft.threshold, calibration, draft.baseline, grid)
            if calibration is not None and calibration.pictures:
                findings = CalibrationFindings.from_evidence(old.threshold.evidence)
                threshold = threshold_from_pictures(scorer, calibration, findings)
                return ThresholdUpdate(threshold, calibration, draft.baseline, grid)
        self._progress("threshold")
        return update_threshold(
            scorer,
            self._load_reference,
            self._load_picture,
            lambda: self._matcher(shifts=False),
            self._examine,
        )

    def _examine(self, calibration: Calibration) -> CalibrationFindings:
        kept = [p for p in calibration.pictures if p.file is not None]
        thumbnails = [thumbnail(self._decode_kept(p)) for p in kept]
        return examine_pictures(self._draft, self._matcher(), calibration, thumbnails)

    def _matcher(self, *, shifts: bool = True) -> PartMatcher:
        """Open a matcher that compares pictures with the references of the draft."""
        references = (self._load_reference(r) for r in self._draft.references)
        return PartMatcher(references, self._patch_mask.cells(SIDE), shifts=shifts)

    def _draft_scorer(self, draft: Product, bank: Bank) -> DraftScorer:
        return DraftScorer(
            self._engine,
            self._bundle.manifest.input,
            draft,
            self._patch_mask,
            bank,
            self._scorer,
            self._load_reference,
        )

    def _load_reference(self, reference: Reference) -> Pixels:
        if reference.pixels in self._new:
            return self._new[reference.pixels].rgb
        folder = self._bundle.product_folder(self._draft.name)
        return decode_picture(self._bundle.read(reference.file, folder), reference.name)

    def _load_picture(self, picture: CalibrationPicture) -> Pixels:
        self._progress(picture.name)
        return self._decode_kept(picture)

    def _decode_kept(self, picture: CalibrationPicture) -> Pixels:
        if picture.file is None:
            raise BundleError(
                f"the calibration picture {picture.name} was not kept", hint="calibrate again"
            )
        folder = self._bundle.product_folder(self._draft.name)
        return decode_picture(self._bundle.read(picture.file, folder), picture.name)

    def _finish(self, product: Product, bank: Bank | None, update: ThresholdUpdate) -> Draft:
        files = {**self._files, **update.files}
        made = update.recorded_in(product)
        return Draft(made, bank, self._patch_mask, files, update.grid, update.notes)


def _with_requested_threshold(draft: Product, old: Product | None, settings: Settings) -> Product:
    """The draft with the threshold that a person sets (its value was checked with the settings),
    or without a threshold where 0 asks for a computed one."""
    if settings.threshold:
        # What was found about the calibration pictures stays with the manual threshold, because
        # the calibrated one may come back.
        findings = CalibrationFindings()
        if draft.calibration is not None:
            findings = CalibrationFindings.from_evidence(draft.threshold.evidence)
        manual = Threshold(
            kind="manual", value=settings.threshold, evidence=findings.manual_evidence()
        )
        return draft.model_copy(update={"threshold": manual})
    if settings.threshold == 0:
        return draft.model_copy(update={"threshold": Threshold()})
    if draft.threshold.kind == "manual" and old and not _agree(old, draft, SCALE_FIELDS):
        raise UsageError(
            f"the threshold {draft.threshold.value:g} was set by hand for other scores",
            hint="give `threshold` too; 0 computes it",
        )
    return draft


def _scores_are_equal(old: Product, draft: Product) -> bool:
    """Whether every picture has the same score as in the generation before."""
    return (
        old.bank is not None
        and draft.bank is not None
        and old.bank.sha256 == draft.bank.sha256
        and _agree(old, draft, SCORE_FIELDS)
    )


def _agree(old: Product, new: Product, fields: Sequence[str]) -> bool:
    return all(getattr(old, k) == getattr(new, k) for k in fields)
