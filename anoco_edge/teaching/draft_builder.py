"""Computes the bank and the threshold of a generation, before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from anoco_edge.bundle import Bank, Bundle, Product, Reference, Threshold
from anoco_edge.bundle.augmentation_choice import AugmentationChoice
from anoco_edge.bundle.schema import Calibration, CalibrationPicture, FileRecord
from anoco_edge.engines import Engine
from anoco_edge.errors import BundleError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.pipeline.picture_quality import PictureGauge, PictureMeasures, limits_from
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring import open_scorer
from anoco_edge.scoring.types import Floats, References
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.teaching.bank_builder import BANK_FIELDS, BankBuild, BankBuilder, Pixels
from anoco_edge.teaching.burst_detection import SIDE, PartMatcher, thumbnail
from anoco_edge.teaching.calibrated_threshold import (
    LoadPicture,
    ThresholdUpdate,
    calibrate_threshold,
    threshold_from_pictures,
    update_threshold,
    without_references,
)
from anoco_edge.teaching.calibration_plan import groups_among_references, plan_calibration
from anoco_edge.teaching.calibration_set import (
    CalibrationFindings,
    CalibrationRequest,
    check_request,
    examine_pictures,
    kept_files,
    new_calibration,
)
from anoco_edge.teaching.choice_pictures import LEAST_PARTS, set_choice_pictures_aside
from anoco_edge.teaching.draft_scorer import DraftScorer, picture_features
from anoco_edge.teaching.drafts import AskedLimits, Draft, Settings, draft_patch_mask
from anoco_edge.teaching.level_choice import Comparison, choose_level
from anoco_edge.teaching.new_pictures import NewPicture
from anoco_edge.teaching.reference_likeness import reference_likeness
from anoco_edge.teaching.tuning_pictures import leave_out_choosing

# These settings give scores their scale, so a threshold set by hand fits no other values.
SCALE_FIELDS = (
    "lam",
    "lambda_kind",
    "floor",
    "metric",
    "pooling",
    "tta",
    "rotations",
    "flips",
    "tiles",
)
# All settings that the score of a picture depends on, beside the bank.
SCORE_FIELDS = (*SCALE_FIELDS, "views", "region", "mask", "cpu_precision")
# The settings that `auto` depends on, beside the pictures.
CHOICE_FIELDS = ("region", "mask", "tiles", "flips")


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
        on_choice: Callable[[Product], None],
    ) -> None:
        self._bundle = bundle
        self._engine = engine
        self._scorer = scorer
        self._draft = draft
        self._files = dict(files)
        self._new = {p.pixels: p for p in pictures}
        self._progress = progress
        self._thinning = thinning
        self._on_choice = on_choice
        self._patch_mask = draft_patch_mask(bundle, draft, files)

    def build(self, old: Product | None, settings: Settings) -> Draft:
        """Compute the bank, and the threshold that follows from it and from the settings.

        `old` is the generation before; None for the first one.
        """
        self._check_sizes()
        known: dict[str, Bank] = {}
        if self._chooses_again(old, settings):
            known = self._choose_level(self._kept_choice_pictures(), self._load_picture)
        if not self._draft.references:
            empty = self._draft.model_copy(update={"dropped_patches": 0, "merged_patches": 0})
            return self._finish(empty, None, without_references(empty))
        product, bank = self._with_bank(self._build_bank(old, known))
        update = self._update_threshold(product, old, settings, bank)
        limited = self._with_limits(product, bank, old, settings.picture_limits)
        return self._finish(limited, bank, update)

    def build_without_threshold(self, earlier: Sequence[Draft]) -> Draft:
        """Compute the bank alone. Patches that an earlier draft holds are taken from there, unless
        a setting that they depend on differs."""
        self._check_sizes()
        reusable: dict[str, Bank] = {}
        if self._draft.augmentation_choice is not None:
            reusable = self._choose_level((), self._load_picture)
        wanted = {reference.pixels for reference in self._draft.references}
        for draft in earlier:
            if draft.bank is not None and _agree(draft.product, self._draft, BANK_FIELDS):
                for number, reference in enumerate(draft.product.references):
                    if reference.pixels in wanted - reusable.keys():
                        reusable[reference.pixels] = draft.bank.only([number])
        built = self._bank_builder(self._draft).build(reusable)
        product = built.recorded_in(self._draft)
        return Draft(product, built.bank, self._patch_mask, self._files)

    def calibrate(self, old: Product, bank: Bank, request: CalibrationRequest) -> Draft:
        """Compute a calibrated threshold for the bank of the generation before, or where `auto`
        now chooses another level for a new one."""
        check_request(request)
        matcher, auto = self._matcher(), self._draft.augmentation_choice is not None
        request, left_out = leave_out_choosing(old, matcher, request)
        calibration = new_calibration(old, matcher, request)
        if auto:
            calibration = set_choice_pictures_aside(calibration)
        try:
            plan = plan_calibration(self._draft, self._patch_mask, calibration)
        except UsageError as error:
            what = "; ".join((*left_out, error.what))
            raise UsageError(what, hint=error.hint) from None
        given = {p.pixels: p for p in request.pictures}
        thumbnails = [given[p.pixels].thumbnail for p in calibration.pictures]
        findings = examine_pictures(self._draft, matcher, calibration, thumbnails)

        measures: dict[str, PictureMeasures] = {}

        def load(picture: CalibrationPicture) -> Pixels:
            self._progress(picture.name)
            rgb = given[picture.pixels].rgb
            measures[picture.pixels] = self._gauge().measure(rgb)
            return rgb

        product = self._draft.model_copy(update={"bank": old.bank})
        if auto:
            known = self._choose_level(plan.pictures("choice"), load, calibration)
            product = self._draft.model_copy(update={"bank": old.bank})
            if not _agree(old, product, BANK_FIELDS):
                product, bank = self._with_bank(self._build_bank(old, known))
        scorer = self._draft_scorer(product, bank)
        update = calibrate_threshold(scorer, plan, load, findings)
        update = replace(update, notes=(*left_out, *update.notes))
        self._files |= kept_files(update.calibration, request.pictures)
        product = self._with_limits(product, bank, old)
        if product.picture_limits is not None and measures:
            seen = limits_from(list(measures.values()), update.likeness)
            limits = product.picture_limits.widened(seen)
            product = product.model_copy(update={"picture_limits": limits})
        return self._finish(product, bank, update)

    def _chooses_again(self, old: Product | None, settings: Settings) -> bool:
        """Whether `auto` chooses the level of this generation, or keeps that of the one before. A
        threshold that was set by hand fits one level only, so it keeps the level."""
        draft = self._draft
        if draft.augmentation_choice is None:
            return False
        if old is None or old.augmentation_choice is None or "tta" in settings.fields:
            return True
        if old.threshold.kind == "manual":
            return False
        pictures = [r.pixels for r in draft.references]
        return pictures != [r.pixels for r in old.references] or not _agree(
            old, draft, CHOICE_FIELDS
        )

    def _choose_level(
        self,
        held_out: Sequence[CalibrationPicture],
        load: LoadPicture,
        calibration: Calibration | None = None,
    ) -> dict[str, Bank]:
        """Change the draft to the level that `auto` chooses. Returns banks of single references
        that were computed meanwhile. `calibration` is the one whose pictures were too few where
        `held_out` is empty."""
        chosen = choose_level(
            self._draft, self._bundle.manifest.input, held_out, self._comparison(load)
        )
        draft = chosen.draft
        if calibration is not None and calibration.pictures and not held_out:
            draft = _say_too_few(draft, calibration)
        self._draft = draft
        self._patch_mask = draft_patch_mask(self._bundle, draft, self._files)
        self._on_choice(draft)
        return chosen.banks

    def _comparison(self, load: LoadPicture) -> Comparison:
        window, draft = self._bundle.manifest.input, self._draft
        tiling = Tiling(window, draft.tiles)

        def features(sample: Product, picture: CalibrationPicture) -> Floats:
            mask = draft_patch_mask(self._bundle, sample, self._files)
            return picture_features(self._engine, tiling, mask, load(picture))[0]

        def energy(query: Floats, bank: References) -> float:
            found = open_scorer(self._scorer, bank, draft.parameters(bank)).score(query)
            return float(found.energy.mean(dtype=np.float64))

        return Comparison(
            lambda sample, reference: self._bank_builder(sample).view_banks(reference),
            features,
            energy,
        )

    def _kept_choice_pictures(self) -> list[CalibrationPicture]:
        """The pictures that chose the level when the product was calibrated, where they are kept
        and not references now."""
        calibration = self._draft.calibration
        if calibration is None:
            return []
        taken = groups_among_references(self._draft, calibration)
        return [
            p
            for p in calibration.pictures
            if p.role == "choice" and p.file is not None and p.group not in taken
        ]

    def _with_bank(self, built: BankBuild) -> tuple[Product, Bank]:
        """Record a bank in the draft, and its content among the files that a commit writes."""
        data = built.bank.to_bytes()
        path = f"bank-{self._draft.generation}.safetensors"
        record = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
        self._files[path] = data
        return built.recorded_in(self._draft).model_copy(update={"bank": record}), built.bank

    def _check_sizes(self) -> None:
        for reference in self._draft.references:
            self._patch_mask.check_size(reference.width, reference.height, reference.name)

    def _build_bank(self, old: Product | None, known: Mapping[str, Bank]) -> BankBuild:
        """Build the bank. Patches that the old bank holds are taken from there, unless a setting
        that they depend on has changed; a thinned bank is only taken as a whole. `known` are banks
        of single references that were computed for this generation."""
        reusable = dict(known)
        if old is not None and old.bank and _agree(old, self._draft, BANK_FIELDS):
            bank = self._bundle.bank(old)
            if [r.pixels for r in old.references] == [r.pixels for r in self._draft.references]:
                counts = old.dropped_patches, self._draft.coreset, old.merged_patches
                return BankBuild(bank, *counts)
            reusable |= {r.pixels: bank.only([k]) for k, r in enumerate(old.references)}
        return self._bank_builder(self._draft).build(reusable)

    def _bank_builder(self, draft: Product) -> BankBuilder:
        return BankBuilder(
            self._engine,
            self._bundle.manifest.input,
            draft,
            draft_patch_mask(self._bundle, draft, self._files),
            self._load_reference,
            self._progress,
            self._thinning,
        )

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
            draft_patch_mask(self._bundle, draft, self._files),
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

    def _with_limits(
        self, product: Product, bank: Bank, old: Product | None, asked: AskedLimits | None = None
    ) -> Product:
        """Learn the limits of picture quality of a new product, of one whose references or settings
        have changed, or where a person asks for them. A product without limits stays without."""
        known = old.picture_limits if old else None
        if asked == "none":
            return product.model_copy(update={"picture_limits": None})
        if asked is None and old is not None:
            pictures = [r.pixels for r in product.references]
            same = _agree(old, product, BANK_FIELDS)
            if known is None or (same and pictures == [r.pixels for r in old.references]):
                return product
            known = known if same and product.calibration is not None else None
        gauge = self._gauge()
        measures = [gauge.measure(self._load_reference(r)) for r in product.references]
        limits = limits_from(measures, reference_likeness(bank))
        if known is not None and asked is None:  # its calibration pictures may not be here any more
            limits = limits.widened(known)
        return product.model_copy(update={"picture_limits": limits})

    def _gauge(self) -> PictureGauge:
        contract = self._bundle.manifest.input.tiled(self._draft.tiles)
        return PictureGauge(contract, self._patch_mask)

    def _finish(self, product: Product, bank: Bank | None, update: ThresholdUpdate) -> Draft:
        files = {**self._files, **update.files}
        made = update.recorded_in(product)
        return Draft(made, bank, self._patch_mask, files, update.grid, update.notes)


def _say_too_few(draft: Product, calibration: Calibration) -> Product:
    """Add to the words of a choice that the pictures of a calibration had no part in it."""
    choice = draft.augmentation_choice or AugmentationChoice()
    parts = len({p.group for p in calibration.pictures})
    words = (
        f"of {parts} good part{'s' if parts > 1 else ''} the threshold needs so many that fewer "
        f"than {LEAST_PARTS} are left for this choice; {choice.words}"
    )
    return draft.model_copy(
        update={"augmentation_choice": choice.model_copy(update={"words": words})}
    )


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
