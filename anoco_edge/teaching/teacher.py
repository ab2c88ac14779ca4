"""The teacher: changes the products of one bundle with one engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anoco_edge.bundle import Bank, Bundle, Product, Reference, Threshold
from anoco_edge.bundle.generations import commit, next_generation
from anoco_edge.bundle.schema import Calibration, CalibrationPicture, FileRecord
from anoco_edge.bundle.store import DEFAULT_PRODUCT
from anoco_edge.engines import Engine, EngineSettings, open_engine
from anoco_edge.engines.selftest import check_engine
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.storage.locks import locked
from anoco_edge.teaching.bank_builder import CHOSEN_BY, BankBuilder, Pixels
from anoco_edge.teaching.burst_detection import SIDE, PartMatcher, thumbnail
from anoco_edge.teaching.calibrated_threshold import (
    MEASURED_BY,
    SCORED_BY,
    ThresholdUpdate,
    calibrated,
    plan_calibration,
    settle,
    threshold_of,
    without_references,
)
from anoco_edge.teaching.calibration_set import (
    Findings,
    ask_calibration,
    examine_pictures,
    kept_files,
)
from anoco_edge.teaching.draft_scorer import DraftScorer, Judge
from anoco_edge.teaching.drafts import NO_CHANGE, Draft, Settings, draft_geometry, draft_product
from anoco_edge.teaching.new_pictures import NewPicture, new_ones

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ProductChange:
    """What a change did, or would do."""

    product: Product
    before: Product | None = None
    added: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    draft: Draft | None = None

    @staticmethod
    def by(
        draft: Draft,
        before: Product | None,
        added: tuple[str, ...] = (),
        duplicates: tuple[str, ...] = (),
    ) -> ProductChange:
        """The change that a draft makes, or has made."""
        return ProductChange(draft.product, before, added, duplicates, draft.notes, draft)

    def require_draft(self) -> Draft:
        """Return the draft that makes the change. A change that only went back has none."""
        if self.draft is None:
            raise UsageError(
                f"this change of product {self.product.name!r} has no draft to inspect with",
                hint="ask the teacher for the change again with commit=False",
            )
        return self.draft


class Teacher:
    """Changes products; `commit=False` only says what a change would do, and needs no lock."""

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine,
        scorer: str = "auto",
        *,
        wait: float = 600.0,
        progress: Progress = lambda _: None,
        on_wait: Progress = lambda _: None,
        thinning: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        self.bundle = bundle
        self.engine = engine
        self._scorer = scorer
        self._wait = wait
        self._progress = progress
        self._on_wait = on_wait
        self._thinning = thinning

    @staticmethod
    def open(
        path: str | Path | Bundle,
        engine: str = "auto",
        scorer: str = "auto",
        *,
        settings: EngineSettings | None = None,
        wait: float = 600.0,
        progress: Progress = lambda _: None,
        on_wait: Progress = lambda _: None,
        thinning: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Teacher:
        """Open a bundle, by its path unless it is open already, and an engine that must pass the
        bundle's self-test."""
        bundle = path if isinstance(path, Bundle) else Bundle.open(path)
        opened = open_engine(engine, bundle, settings)
        check_engine(bundle, opened)
        return Teacher(
            bundle,
            opened,
            scorer,
            wait=wait,
            progress=progress,
            on_wait=on_wait,
            thinning=thinning,
        )

    # ---- changes

    def enroll(
        self,
        pictures: Sequence[NewPicture],
        product: str | None = None,
        settings: Settings = NO_CHANGE,
        *,
        commit: bool = True,
    ) -> ProductChange:
        """Add references; pictures that are references already are refused by name."""
        if not pictures:
            raise UsageError("there are no reference pictures", hint="give pictures of good parts")
        name = self._name(product)
        with self._lock(name, commit):
            old = self.bundle.product(name) if name in self.bundle.products() else None
            fresh, duplicates = new_ones(pictures, old.references if old else ())
            if not fresh:
                raise PictureError(
                    f"nothing new: {', '.join(duplicates)}",
                    hint="every picture is known already; give pictures of other parts",
                )
            references = [*(old.references if old else ()), *(p.reference for p in fresh)]
            change = f"enroll {len(fresh)}"
            draft = self._change(name, old, references, fresh, settings, change, commit)
        return ProductChange.by(draft, old, tuple(p.name for p in fresh), tuple(duplicates))

    def remove(
        self, names: Sequence[str], product: str | None = None, *, commit: bool = True
    ) -> ProductChange:
        """Take references away by name."""
        name = self.bundle.product(product).name  # before the lock, which would make its folder
        with self._lock(name, commit):
            old = self.bundle.product(name)
            unknown = sorted(set(names) - {r.name for r in old.references})
            if unknown:
                raise UsageError(
                    f"product {name!r} has no reference {', '.join(unknown)}",
                    hint=f"it has: {', '.join(r.name for r in old.references) or 'none'}",
                )
            left = [r for r in old.references if r.name not in set(names)]
            change = f"remove {len(names)}"
            draft = self._change(name, old, left, [], NO_CHANGE, change, commit)
        return ProductChange.by(draft, old)

    def configure(
        self, settings: Settings, product: str | None = None, *, commit: bool = True
    ) -> ProductChange:
        """Change settings; bank and threshold follow."""
        name = self.bundle.product(product).name  # before the lock, which would make its folder
        if settings == NO_CHANGE:
            raise UsageError(
                "there is nothing to change",
                hint="give a setting, such as `max_patches` or `threshold`",
            )
        with self._lock(name, commit):
            old = self.bundle.product(name)
            references = list(old.references)
            draft = self._change(name, old, references, [], settings, "product set", commit)
        return ProductChange.by(draft, old)

    def calibrate(
        self,
        pictures: Sequence[NewPicture],
        product: str | None = None,
        *,
        false_reject: float = 0.01,
        groups: Sequence[str] | None = None,
        accept_fewer: bool = False,
        keep: bool = True,
        sigmas: float | None = None,
        commit: bool = True,
    ) -> ProductChange:
        """Set the threshold from good parts that are not references; without any, from the
        references against each other.

        `groups` says which pictures show the same part; without it, pictures that look like one
        part count as one. Pictures that look like a reference are refused. `keep` copies the
        pictures into the bundle, so that a later change of the references can score them again;
        `sigmas` takes the usual energy of each place off first.
        """
        name = self.bundle.product(product).name
        with self._lock(name, commit):
            old = self.bundle.product(name)
            bank = self.bundle.bank(old)
            change = f"calibrate {len(pictures) or 'references'}"
            window = self.bundle.manifest.input
            number = next_generation(self.bundle, name)
            draft, files = draft_product(
                window, name, old, old.references, NO_CHANGE, generation=number, change=change
            )
            patch_mask = draft_geometry(self.bundle, draft, files)
            matcher = self._matcher(draft, patch_mask, {})
            asked = ask_calibration(
                old,
                matcher,
                pictures,
                groups,
                keep,
                false_reject=false_reject,
                accept_fewer=accept_fewer,
                sigmas=sigmas,
            )
            plan = plan_calibration(draft, patch_mask, asked)
            given = {p.pixels: p for p in pictures}
            thumbnails = [given[p.pixels].thumbnail for p in asked.pictures]
            findings = examine_pictures(draft, matcher, asked, thumbnails)

            def load(picture: CalibrationPicture) -> Pixels:
                self._progress(picture.name)
                return given[picture.pixels].rgb

            draft_scorer = self._examiner(draft, patch_mask, bank, {})
            update = calibrated(draft_scorer, plan, load, findings)
            files |= kept_files(update.calibration, pictures)
            made = self._made(draft, bank, patch_mask, files, update, {"bank": old.bank})
            if commit:
                made = self._commit(made)
        return ProductChange.by(made, old)

    def draft(
        self,
        pictures: Sequence[NewPicture],
        settings: Settings = NO_CHANGE,
        *,
        like: Product | None = None,
    ) -> Draft:
        """References and bank of a product that is never written, without a threshold; `like`
        lends its settings."""
        window = self.bundle.manifest.input
        if like is not None:
            without = {"references": (), "calibration": None, "baseline": None}
            like = like.model_copy(update={**without, "threshold": Threshold()})
        fresh, _ = new_ones(pictures, ())
        references = [p.reference for p in fresh]
        name = like.name if like else DEFAULT_PRODUCT
        draft, files = draft_product(
            window, name, like, references, settings, generation=1, change="draft"
        )
        patch_mask = draft_geometry(self.bundle, draft, files)
        for reference in references:
            patch_mask.check_size(reference.width, reference.height, reference.name)
        bank, found = self._bank(draft, None, patch_mask, {p.pixels: p for p in fresh})
        return Draft(draft.model_copy(update=found), bank, patch_mask, files)

    def judge(self, draft: Draft) -> Judge:
        """Gives the score and the verdict that a picture would get."""
        if draft.bank is None:
            raise UsageError(
                f"product {draft.product.name!r} would have no references",
                hint="enrol pictures of good parts first, then judge others by them",
            )
        draft_scorer = self._examiner(draft.product, draft.patch_mask, draft.bank, {})
        return draft_scorer.judge(draft.baseline)

    # ---- one generation

    def _change(
        self,
        name: str,
        old: Product | None,
        references: list[Reference],
        fresh: Sequence[NewPicture],
        settings: Settings,
        change: str,
        commit: bool,
    ) -> Draft:
        number = next_generation(self.bundle, name)
        draft, files = draft_product(
            self.bundle.manifest.input,
            name,
            old,
            references,
            settings,
            generation=number,
            change=change,
        )
        new = {p.pixels: p for p in fresh}
        files |= {p.reference.file.path: p.data for p in fresh}
        patch_mask = draft_geometry(self.bundle, draft, files)
        for reference in references:
            patch_mask.check_size(reference.width, reference.height, reference.name)
        if not references:
            update = without_references(draft)
            made = self._made(draft, None, patch_mask, files, update, {"dropped_patches": 0})
        else:
            bank, found = self._bank(draft, old, patch_mask, new)
            data = bank.to_bytes()
            path = f"bank-{draft.generation}.safetensors"
            found["bank"] = FileRecord(path=path, sha256=sha256_bytes(data), size=len(data))
            files[path] = data
            draft = draft.model_copy(update=found)
            update = self._threshold_update(draft, old, settings, bank, patch_mask, new)
            made = self._made(draft, bank, patch_mask, files, update, {})
        return self._commit(made) if commit else made

    def _bank(
        self,
        draft: Product,
        old: Product | None,
        patch_mask: PatchMask,
        new: Mapping[str, NewPicture],
    ) -> tuple[Bank, dict[str, Any]]:
        """Patches already in the old bank are taken from there, unless the setting that chose or
        rounded them has changed; a thinned bank only as a whole."""
        kept: dict[str, Bank] = {}
        if old is not None and old.bank and _same(old, draft, CHOSEN_BY):
            bank = self.bundle.bank(old)
            if [r.pixels for r in old.references] == [r.pixels for r in draft.references]:
                return bank, {"dropped_patches": old.dropped_patches}
            kept = {r.pixels: bank.only([k]) for k, r in enumerate(old.references)}
        builder = BankBuilder(
            self.engine,
            self.bundle.manifest.input,
            draft,
            patch_mask,
            lambda reference: self._pixels(draft, reference, new),
            self._progress,
            self._thinning,
        )
        return builder.build(kept)

    def _threshold_update(
        self,
        draft: Product,
        old: Product | None,
        settings: Settings,
        bank: Bank,
        patch_mask: PatchMask,
        new: Mapping[str, NewPicture],
    ) -> ThresholdUpdate:
        if settings.threshold:
            # The value was checked by the draft. What was found about the calibration pictures
            # must outlive a threshold by hand: the calibrated one may come back.
            found = {}
            if draft.calibration is not None:
                found = Findings.kept(draft.threshold.evidence).evidence()
            manual = Threshold(kind="manual", value=settings.threshold, evidence=found)
            draft = draft.model_copy(update={"threshold": manual})
        elif settings.threshold == 0:
            draft = draft.model_copy(update={"threshold": Threshold()})
        elif draft.threshold.kind == "manual" and old and not _same(old, draft, MEASURED_BY):
            raise UsageError(
                f"the threshold {draft.threshold.value:g} was set by hand for other scores",
                hint="give `threshold` too; 0 computes it anew",
            )
        draft_scorer = self._examiner(draft, patch_mask, bank, new)
        if old is not None and _scores_alike(old, draft):
            grid, calibration = self.bundle.baseline(old), draft.calibration
            if settings.threshold != 0:
                return ThresholdUpdate(draft.threshold, calibration, draft.baseline, grid)
            if calibration is not None and calibration.pictures:
                findings = Findings.kept(old.threshold.evidence)
                threshold = threshold_of(draft_scorer, calibration, findings)
                return ThresholdUpdate(threshold, calibration, draft.baseline, grid)
        self._progress("threshold")
        folder = self.bundle.product_folder(draft.name)

        def load(reference: Reference) -> Pixels:
            return self._pixels(draft, reference, new)

        def load_picture(picture: CalibrationPicture) -> Pixels:
            assert picture.file is not None
            self._progress(picture.name)
            return decode_picture(self.bundle.read(picture.file, folder), picture.name)

        def matcher() -> PartMatcher:
            return self._matcher(draft, patch_mask, new, shifts=False)

        def examine(calibration: Calibration) -> Findings:
            thumbnails = [
                thumbnail(decode_picture(self.bundle.read(p.file, folder), p.name))
                for p in calibration.pictures
                if p.file is not None
            ]
            known = self._matcher(draft, patch_mask, new)
            return examine_pictures(draft, known, calibration, thumbnails)

        return settle(draft_scorer, load, load_picture, matcher, examine)

    def _matcher(
        self,
        draft: Product,
        patch_mask: PatchMask,
        new: Mapping[str, NewPicture],
        *,
        shifts: bool = True,
    ) -> PartMatcher:
        """Compares pictures with the draft's references."""
        references = (self._pixels(draft, r, new) for r in draft.references)
        return PartMatcher(references, patch_mask.cells(SIDE), shifts=shifts)

    def _examiner(
        self, draft: Product, patch_mask: PatchMask, bank: Bank, new: Mapping[str, NewPicture]
    ) -> DraftScorer:
        return DraftScorer(
            self.engine,
            self.bundle.manifest.input,
            draft,
            patch_mask,
            bank,
            self._scorer,
            lambda reference: self._pixels(draft, reference, new),
        )

    def _made(
        self,
        draft: Product,
        bank: Bank | None,
        patch_mask: PatchMask,
        files: Mapping[str, bytes],
        update: ThresholdUpdate,
        fields: Mapping[str, Any],
    ) -> Draft:
        product = draft.model_copy(update={**update.fields(), **fields})
        everything = {**files, **update.files}
        return Draft(product, bank, patch_mask, everything, update.grid, update.notes)

    def _commit(self, draft: Draft) -> Draft:
        """As it was written, checksum and all."""
        product = Product.model_validate(draft.product.model_dump(by_alias=True))
        commit(self.bundle, product, draft.files)
        return replace(draft, product=self.bundle.product(product.name))

    def _pixels(
        self, draft: Product, reference: Reference, new: Mapping[str, NewPicture]
    ) -> Pixels:
        if reference.pixels in new:
            return new[reference.pixels].rgb
        folder = self.bundle.product_folder(draft.name)
        return decode_picture(self.bundle.read(reference.file, folder), reference.name)

    def _name(self, product: str | None) -> str:
        if product is not None:
            return product
        names = self.bundle.products()
        return self.bundle.product().name if names else DEFAULT_PRODUCT

    def _lock(self, name: str, commit: bool) -> Any:
        if any(not (c.isalnum() or c in "-_.") for c in name) or name.startswith(".") or not name:
            raise UsageError(
                f"{name!r} is not a product name", hint="use letters, digits, '-', '_' and '.'"
            )
        if not commit:
            return nullcontext()
        return locked(self.bundle.product_folder(name), self._wait, self._on_wait)


def _scores_alike(old: Product, draft: Product) -> bool:
    """Whether every picture has the same score as before."""
    return (
        old.bank is not None
        and draft.bank is not None
        and old.bank.sha256 == draft.bank.sha256
        and _same(old, draft, SCORED_BY)
    )


def _same(old: Product, new: Product, fields: Sequence[str]) -> bool:
    return all(getattr(old, k) == getattr(new, k) for k in fields)
