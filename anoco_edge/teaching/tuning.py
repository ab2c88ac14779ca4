"""Chooses augmentation and pooling of a product by good pictures alone.

Nobody has pictures of all defects. So defects are drawn on held-out good parts
(`synthetic_defects`), each setting scores the parts with and without them, and a setting takes the
place of the present one if it separates them better beyond noise (`tuning_choice`). Another tap or
another size of the input is another backbone, which has a bundle of its own: other bundles can be
compared too, but only the product itself is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anoco_edge.bundle import Product
from anoco_edge.bundle.schema import Tuning
from anoco_edge.errors import UsageError
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.teaching.burst_detection import SIDE, PartMatcher
from anoco_edge.teaching.drafts import Settings
from anoco_edge.teaching.new_pictures import NewPicture
from anoco_edge.teaching.product_change import ProductChange
from anoco_edge.teaching.synthetic_defects import DEFECTS
from anoco_edge.teaching.teacher import Teacher
from anoco_edge.teaching.tuning_choice import choose, compare
from anoco_edge.teaching.tuning_pictures import TuningPictures, divide_pictures
from anoco_edge.teaching.tuning_trial import BundleTrial, TriedSetting

Step = Callable[[str], None]


@dataclass(frozen=True)
class TuningOutcome:
    """What was tried and chosen, and the change that sets it."""

    tried: tuple[TriedSetting, ...]
    pictures: TuningPictures
    change: ProductChange
    better_elsewhere: TriedSetting | None
    """A setting of another bundle that is better than the chosen one beyond noise."""

    @property
    def chosen(self) -> TriedSetting:
        """The setting that the product has now, or would have."""
        return next(one for one in self.tried if one.chosen)

    @property
    def present(self) -> TriedSetting:
        """The setting that the product had before."""
        return next(one for one in self.tried if one.present)


def tune(
    teacher: Teacher,
    pictures: Sequence[NewPicture],
    product: str | None = None,
    *,
    also: Sequence[Teacher] = (),
    groups: Sequence[str] | None = None,
    seed: int = 0,
    commit: bool = True,
    step: Step = lambda _: None,
) -> TuningOutcome:
    """Try augmentation and pooling on good pictures, and set what is better beyond noise.

    Half of the parts choose, drawn by the seed. The product records them, and `calibrate` leaves
    them out. `groups` says which pictures show the same part. `also` are other bundles, exported
    with other taps or sizes, that are compared and not changed. `step` is called with the name of
    each picture once it is scored.

    Example::

        from pathlib import Path

        from anoco_edge.teaching import NewPicture, Teacher, tune

        good = [NewPicture.from_file(path) for path in sorted(Path("more-good").glob("*.png"))]
        outcome = tune(Teacher.open("line.anoco"), good, commit=False)
        for one in outcome.tried:
            print(one.augmentation, one.pooling, f"{one.separation:.1%} {one.ms:.0f} ms")
        print("chosen:", outcome.chosen.augmentation, outcome.chosen.pooling)
    """
    found: list[tuple[list[TriedSetting], TuningPictures]] = []

    def choose_settings(old: Product) -> Settings:
        _check_product(teacher, old, also, commit=commit)
        references = [NewPicture.from_reference(teacher.bundle, old, r) for r in old.references]
        divided = _divide(teacher, old, references, pictures, seed, groups)
        trials = [BundleTrial(teacher, old, references, None)]
        mask = _mask_of(teacher, old)
        trials += [BundleTrial(other, old, references, mask) for other in also]
        tried = [one for trial in trials for one in trial.run(divided.scored, seed, step)]
        own = len(tried) // len(trials)
        tried = _decide(tried, own, old, seed)
        found.append((tried, divided))
        chosen = next(one for one in tried if one.chosen)
        return Settings({**chosen.fields, "tuning": _record(tried, divided, old, seed)})

    change = teacher.configure_by(choose_settings, product, change="tune", commit=commit)
    ((tried, divided),) = found
    return TuningOutcome(tuple(tried), divided, change, _better_elsewhere(tried, seed))


def _check_product(
    teacher: Teacher, old: Product, also: Sequence[Teacher], *, commit: bool
) -> None:
    if not old.references:
        raise UsageError(
            f"product {old.name!r} has no references", hint="enrol pictures of good parts first"
        )
    if commit and old.threshold.kind == "manual":
        raise UsageError(
            f"the threshold {old.threshold.value:g} was set by hand for the present settings",
            hint="compute it first: anoco-edge product set BUNDLE `threshold=0`",
        )
    paths = [one.bundle.path.resolve() for one in (teacher, *also)]
    twice = [path for k, path in enumerate(paths) if path in paths[:k]]
    if twice:
        raise UsageError(f"{twice[0]} is compared with itself", hint="give other bundles")
    if also and old.tiles is not None:
        raise UsageError(
            f"the tiles of product {old.name!r} are planned for the input of its own bundle",
            hint="compare other bundles without tiles",
        )


def _divide(
    teacher: Teacher,
    product: Product,
    references: Sequence[NewPicture],
    pictures: Sequence[NewPicture],
    seed: int,
    groups: Sequence[str] | None,
) -> TuningPictures:
    patch_mask = PatchMask.of(teacher.bundle, product)
    for picture in pictures:
        patch_mask.check_size(picture.width, picture.height, picture.name)
    matcher = PartMatcher((p.rgb for p in references), patch_mask.cells(SIDE))
    return divide_pictures(product, matcher, pictures, seed, groups)


def _mask_of(teacher: Teacher, product: Product) -> bytes | None:
    if product.mask is None:
        return None
    return teacher.bundle.read(product.mask, teacher.bundle.product_folder(product.name))


def _decide(tried: Sequence[TriedSetting], own: int, old: Product, seed: int) -> list[TriedSetting]:
    """Compare all settings with the present one and mark what is chosen among the first `own`, the
    settings of the product's own bundle."""
    scores = [one.scores for one in tried]
    present = next(k for k, one in enumerate(tried[:own]) if one.is_setting_of(old))
    changes = [one.changes_to(old) for one in tried[:own]]
    chosen = choose(scores[:own], present, changes=changes, comparisons=len(tried) - 1, seed=seed)
    decided = []
    for k, one in enumerate(tried):
        apart = compare(scores[k], scores[present], comparisons=len(tried) - 1, seed=seed)
        decided.append(
            replace(
                one,
                gain=apart.gain,
                noise=apart.noise,
                present=k == present,
                chosen=k == chosen,
            )
        )
    return decided


def _better_elsewhere(tried: Sequence[TriedSetting], seed: int) -> TriedSetting | None:
    chosen = next(one for one in tried if one.chosen)
    others = [one for one in tried if one.bundle != chosen.bundle]
    better = [
        one
        for one in others
        if compare(one.scores, chosen.scores, comparisons=len(others), seed=seed).beyond_noise
    ]
    return max(better, key=lambda one: one.separation, default=None)


def _record(
    tried: Sequence[TriedSetting], divided: TuningPictures, old: Product, seed: int
) -> Tuning:
    """What the product records. Pictures that chose before stay in the record."""
    chosen = next(one for one in tried if one.chosen)
    present = next(one for one in tried if one.present)
    words = (
        f"chosen among {len(tried)} settings by {len(divided.scored)} good parts with "
        f"{len(DEFECTS)} drawn defects each: augmentation {chosen.augmentation} and pooling "
        f"{chosen.pooling} separate {chosen.separation:.1%} of pairs"
    )
    if chosen is not present:
        words += f", {present.augmentation} and {present.pooling} {present.separation:.1%}"
    before = old.tuning.pictures if old.tuning else ()
    return Tuning(seed=seed, words=words, pictures=tuple(sorted({*before, *divided.choosing})))
