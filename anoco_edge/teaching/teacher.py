"""The teacher, which changes the products of one bundle with one engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from anoco_edge.bundle import Bundle, Product, Reference, Threshold
from anoco_edge.bundle.generations import check_generation, commit, next_generation
from anoco_edge.bundle.schema import is_product_name
from anoco_edge.bundle.store import DEFAULT_PRODUCT
from anoco_edge.engines import Engine, EngineSettings
from anoco_edge.engines.base import computed_in
from anoco_edge.engines.cpu_precision import taught_in
from anoco_edge.engines.opening import EngineOpener
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.images.decode import decode_picture
from anoco_edge.storage.locks import locked
from anoco_edge.teaching.augmentation_cost import measure_augmentation_cost
from anoco_edge.teaching.bank_builder import Pixels
from anoco_edge.teaching.calibration_set import CalibrationRequest
from anoco_edge.teaching.draft_builder import DraftBuilder
from anoco_edge.teaching.draft_scorer import DraftScorer, Judge
from anoco_edge.teaching.drafts import NO_CHANGE, AskedLevel, Draft, Settings, draft_product
from anoco_edge.teaching.new_pictures import NewPicture, separate_duplicates
from anoco_edge.teaching.product_change import ProductChange

Progress = Callable[[str], None]


class Teacher:
    """Changes the products of a bundle.

    With `commit=False` a method only computes what the change would do. It then takes no lock and
    writes nothing. With `expected`, the change is refused with a ConflictError unless the product
    is at this generation (0: there is no such product yet), so that of two people who change one
    product at once the second is told. `on_choice` is called before a change is committed with what
    `auto` chose for the augmentation, in one sentence, and with what that costs.
    """

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
        opener: EngineOpener | None = None,
        on_choice: Progress | None = None,
    ) -> None:
        self.bundle = bundle
        self.engine = engine
        self._opener = opener
        self._scorer = scorer
        self._wait = wait
        self._progress = progress
        self._on_wait = on_wait
        self._thinning = thinning
        self._on_choice = on_choice

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
        on_choice: Progress | None = None,
    ) -> Teacher:
        """Open a bundle, by its path unless it is open already, and an engine that must pass the
        bundle's self-test.

        With `cpu_precision="auto"`, a product is changed in the precision that it was taught in.
        """
        bundle = path if isinstance(path, Bundle) else Bundle.open(path)
        opener = EngineOpener(engine, bundle, settings or EngineSettings())
        names = bundle.products()
        first = opener.open(bundle.product(names[0]) if names else None)
        return Teacher(
            bundle,
            first.engine,
            scorer,
            wait=wait,
            progress=progress,
            on_wait=on_wait,
            thinning=thinning,
            opener=opener,
            on_choice=on_choice,
        )

    # ---- changes

    def enroll(
        self,
        pictures: Sequence[NewPicture],
        product: str | None = None,
        settings: Settings = NO_CHANGE,
        *,
        new_level: AskedLevel = "none",
        commit: bool = True,
        expected: int | None = None,
    ) -> ProductChange:
        """Add references. Pictures that are references already are left out and named.

        `new_level` is the augmentation of a product that does not exist yet, where the settings
        name none.
        """
        if not pictures:
            raise UsageError("there are no reference pictures", hint="give pictures of good parts")
        name = self._name(product)
        with self._lock(name, commit):
            old = self.bundle.product(name) if name in self.bundle.products() else None
            check_generation(name, old, expected)
            fresh, duplicates = separate_duplicates(pictures, old.references if old else ())
            if not fresh:
                raise PictureError(
                    f"nothing new: {', '.join(duplicates)}",
                    hint="every picture is known already; give pictures of other parts",
                )
            if old is None and "tta" not in settings.fields:
                settings = replace(settings, fields={**settings.fields, "tta": new_level})
            references = [*(old.references if old else ()), *(p.reference for p in fresh)]
            change = f"enroll {len(fresh)}"
            draft = self._change(name, old, references, fresh, settings, change, commit)
        return ProductChange.by(draft, old, tuple(p.name for p in fresh), tuple(duplicates))

    def remove(
        self,
        names: Sequence[str],
        product: str | None = None,
        *,
        commit: bool = True,
        expected: int | None = None,
    ) -> ProductChange:
        """Remove references by their names."""
        name = self.bundle.product(product).name  # before the lock, which creates a folder
        with self._lock(name, commit):
            old = self.bundle.product(name)
            check_generation(name, old, expected)
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
        self,
        settings: Settings,
        product: str | None = None,
        *,
        commit: bool = True,
        expected: int | None = None,
    ) -> ProductChange:
        """Change the settings of a product; bank and threshold are computed to fit them."""
        if settings == NO_CHANGE:
            self.bundle.product(product)
            raise UsageError(
                "there is nothing to change",
                hint="give a setting, such as `max_patches` or `threshold`",
            )
        return self.configure_by(
            lambda _: settings, product, change="product set", commit=commit, expected=expected
        )

    def configure_by(
        self,
        choose: Callable[[Product], Settings],
        product: str | None = None,
        *,
        change: str,
        commit: bool = True,
        expected: int | None = None,
    ) -> ProductChange:
        """Change settings to those that `choose` returns for the product as it is.

        It is called while no other process can change the product. `change` is the name of the
        generation.
        """
        name = self.bundle.product(product).name  # before the lock, which creates a folder
        with self._lock(name, commit):
            old = self.bundle.product(name)
            check_generation(name, old, expected)
            draft = self._change(name, old, list(old.references), [], choose(old), change, commit)
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
        expected: int | None = None,
    ) -> ProductChange:
        """Set the threshold from good parts that are not references; without any, from the
        references against each other.

        `groups` says which pictures show the same part; without it, pictures that look like one
        part count as one. Pictures that look like a reference are refused. `keep` copies the
        pictures into the bundle, so that a later change of the references can score them again.
        With `sigmas`, scores count only what exceeds the usual energy of each place.
        """
        request = CalibrationRequest(pictures, false_reject, groups, accept_fewer, keep, sigmas)
        name = self.bundle.product(product).name
        with self._lock(name, commit):
            old = self.bundle.product(name)
            check_generation(name, old, expected)
            bank = self.bundle.bank(old)
            change = f"calibrate {len(pictures) or 'references'}"
            builder = self._builder(name, old, old.references, NO_CHANGE, change)
            draft = builder.calibrate(old, bank, request)
            if commit:
                draft = self._commit(draft)
        return ProductChange.by(draft, old)

    def draft(
        self,
        pictures: Sequence[NewPicture],
        settings: Settings = NO_CHANGE,
        *,
        like: Product | None = None,
        earlier: Sequence[Draft] = (),
    ) -> Draft:
        """Build references and bank of a product that is never written, without a threshold.

        The product has the settings of `like`, changed by `settings`. Patches of a picture that
        an earlier draft with the same settings holds are taken from there.
        """
        if like is not None:
            without = {
                "references": (),
                "calibration": None,
                "baseline": None,
                "augmentation_choice": None,  # what it chose stays
            }
            like = like.model_copy(update={**without, "threshold": Threshold()})
        fresh, _ = separate_duplicates(pictures, ())
        references = [p.reference for p in fresh]
        name = like.name if like else DEFAULT_PRODUCT
        product, files = draft_product(
            self.bundle.manifest,
            name,
            like,
            references,
            settings,
            generation=1,
            change="draft",
        )
        return self._open_builder(product, files, fresh).build_without_threshold(earlier)

    def judge(self, draft: Draft) -> Judge:
        """Make a function that gives the score and the verdict that a picture would get."""
        return self.draft_scorer(draft).judge(draft.baseline)

    def draft_scorer(self, draft: Draft) -> DraftScorer:
        """Open what scores pictures with the bank and the settings of a draft."""
        if draft.bank is None:
            raise UsageError(
                f"product {draft.product.name!r} would have no references",
                hint="enrol pictures of good parts first, then judge others by them",
            )
        return DraftScorer(
            self.engine,
            self.bundle.manifest.input,
            draft.product,
            draft.patch_mask,
            draft.bank,
            self._scorer,
            lambda reference: self._load(draft.product, reference),
        )

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
        builder = self._builder(name, old, references, settings, change, fresh)
        draft = builder.build(old, settings)
        return self._commit(draft) if commit else draft

    def _builder(
        self,
        name: str,
        old: Product | None,
        references: Sequence[Reference],
        settings: Settings,
        change: str,
        fresh: Sequence[NewPicture] = (),
    ) -> DraftBuilder:
        """Open a builder for the next generation; `fresh` are its new references."""
        if self._opener is not None:
            self.engine = self._opener.open(old).engine
        product, files = draft_product(
            self.bundle.manifest,
            name,
            old,
            references,
            settings,
            generation=next_generation(self.bundle, name),
            change=change,
        )
        precision = taught_in(computed_in(self.engine))
        product = product.model_copy(update={"cpu_precision": precision})
        files |= {p.reference.file.path: p.data for p in fresh}
        return self._open_builder(product, files, fresh)

    def _open_builder(
        self, product: Product, files: Mapping[str, bytes], fresh: Sequence[NewPicture]
    ) -> DraftBuilder:
        return DraftBuilder(
            self.bundle,
            self.engine,
            self._scorer,
            product,
            files,
            fresh,
            progress=self._progress,
            thinning=self._thinning,
            on_choice=self._say_choice,
        )

    def _say_choice(self, draft: Product) -> None:
        """Say what `auto` chose, and where it chose rotations what they cost."""
        choice = draft.augmentation_choice
        if self._on_choice is None or choice is None or not choice.words:
            return
        self._on_choice(choice.words)
        window = self.bundle.manifest.input
        cost = measure_augmentation_cost(window, self.engine, NO_CHANGE, product=draft)
        if cost is not None:
            self._on_choice(cost.in_words())

    def _commit(self, draft: Draft) -> Draft:
        """Commit a draft; returns it with the product as it was written, checksum included."""
        product = Product.model_validate(draft.product.model_dump(by_alias=True))
        commit(self.bundle, product, draft.files)
        return replace(draft, product=self.bundle.product(product.name))

    def _load(self, product: Product, reference: Reference) -> Pixels:
        folder = self.bundle.product_folder(product.name)
        return decode_picture(self.bundle.read(reference.file, folder), reference.name)

    def _name(self, product: str | None) -> str:
        if product is not None:
            return product
        names = self.bundle.products()
        return self.bundle.product().name if names else DEFAULT_PRODUCT

    def _lock(self, name: str, commit: bool) -> AbstractContextManager[object]:
        if not is_product_name(name):
            raise UsageError(
                f"{name!r} is not a product name", hint="use letters, digits, '-', '_' and '.'"
            )
        if not commit:
            return nullcontext()
        return locked(self.bundle.product_folder(name), self._wait, self._on_wait)
