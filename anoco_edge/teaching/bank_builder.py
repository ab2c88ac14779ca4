"""Building a bank from reference pictures: every view of every reference, thinned on request.

Turned views of one picture repeat many of its patches, or nearly so: an even background, a part
that is round. Such duplicates are left out where a bank has rotations. The picture's own patches
all stay, as in a bank without rotations, and so do patches that another picture repeats: removing
one reference then leaves the rows of the others as they are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, InputContract, Product, Reference
from anoco_edge.bundle.bank import join
from anoco_edge.bundle.schema import Affine, Coreset
from anoco_edge.engines import Engine
from anoco_edge.errors import ScoringError
from anoco_edge.images.preprocess import Placement, place, prepare
from anoco_edge.pipeline.augmentation import IDENTITY, warp
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.rotations import turn
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring.types import Floats, References
from anoco_edge.storage.atomic_files import writing
from anoco_edge.teaching.coreset import thin, unique_rows
from anoco_edge.teaching.near_duplicates import without_near_duplicates

Pixels = NDArray[np.uint8]
Load = Callable[[Reference], Pixels]

BANK_FIELDS = (
    "region",
    "mask",
    "bank_dtype",
    "tiles",
    "tta",
    "tta_seed",
    "rotations",
    "flips",
    "merge_distance",
    "coreset",
)
"""The settings of a product that a bank depends on, beside the pictures. Where one of them changes,
no patch of the old bank can be used again."""

_COLUMNS = ("reference", "view", "row", "col")


@dataclass(frozen=True)
class BankBuild:
    """A new bank, and what the product records about how it was built."""

    bank: Bank
    dropped_patches: int
    """How many patches were left out because their norm is zero. With rotations these are counted
    on the pictures themselves, because of a turned view duplicates are left out too."""
    coreset: Coreset | None
    """How the bank was thinned; None where it was not."""
    merged_patches: int = 0
    """How many patches of turned and mirrored views were left out because another patch of their
    picture is as near as the product's `merge_distance`. A thinned bank has no such limit."""

    def recorded_in(self, product: Product) -> Product:
        """The product with these records."""
        update = {
            "dropped_patches": self.dropped_patches,
            "coreset": self.coreset,
            "merged_patches": self.merged_patches,
        }
        return product.model_copy(update=update)


class BankBuilder:
    """Builds the bank of one draft with one engine."""

    def __init__(
        self,
        engine: Engine,
        window: InputContract,
        draft: Product,
        patch_mask: PatchMask,
        load: Load,
        progress: Callable[[str], None],
        thinning: Callable[[int, int], None],
    ) -> None:
        self._engine = engine
        self._tiling = Tiling(window, draft.tiles)
        self._draft = draft
        self._turned = draft.has_turned_views
        self._patch_mask = patch_mask
        self._load = load
        self._progress = progress
        self._thinning = thinning

    def build(self, reusable: Mapping[str, Bank]) -> BankBuild:
        """Build the bank of all references of the draft.

        `reusable` holds banks of single pictures by the hash of their pixels. They come from the
        generation before, and the settings that they depend on have not changed.
        """
        scored = sum(self._count_scored(reference) for reference in self._draft.references)
        if self._draft.coreset is not None:
            return self._build_thinned(self._draft.coreset, scored)
        bank = join(
            [
                reusable.get(reference.pixels) or self._whole(reference)
                for reference in self._draft.references
            ],
        )
        merged = 0
        if self._turned:
            turned = sum(self._count_turned(reference) for reference in self._draft.references)
            merged = turned - int(np.count_nonzero(bank.view))
        return BankBuild(bank, scored - self._count_kept(bank.view), None, merged)

    def _views(self, reference: Reference) -> tuple[Affine, ...]:
        return (IDENTITY, *self._draft.views, *reference.views)

    def _count_scored(self, reference: Reference) -> int:
        """Count the patches that the region and the mask leave: of all views, or with rotations of
        the picture itself."""
        placement = place(self._tiling.contract, reference.width, reference.height)
        views = self._views(reference)[: 1 if self._turned else None]
        return sum(int(self._patch_mask.scored(placement, view).sum()) for view in views)

    def _count_turned(self, reference: Reference) -> int:
        """Count the patches that the region, the mask and the border leave of turned views."""
        placement = place(self._tiling.contract, reference.width, reference.height)
        return sum(int(self._patch_mask.scored(placement, view).sum()) for view in reference.views)

    def _count_kept(self, views: NDArray[np.int16]) -> int:
        """Count the patches of a bank in the same way; `views` says of which view each of them
        is."""
        return int(np.count_nonzero(views == 0)) if self._turned else len(views)

    def _whole(self, reference: Reference) -> Bank:
        merge = self._draft.merge_distance if self._turned else None
        return join_views(list(self.view_banks(reference)), merge)

    def view_banks(self, reference: Reference) -> Iterator[Bank]:
        """Yield one bank for each view. A view without any usable patch yields none, but the
        picture itself must have at least one."""
        self._progress(reference.name)
        rgb = self._load(reference)
        pixels, placement = prepare(rgb, self._tiling.contract)
        for number, view in enumerate(self._views(reference)):
            scored = self._patch_mask.scored(placement, view)
            if not scored.any():
                continue
            shown = self._show(rgb, pixels, placement, view) if number else pixels
            features = self._tiling.features(self._engine, shown[None])[0]
            rows, cols = np.nonzero(scored)
            stored = self._in_bank_dtype(features[scored.reshape(-1)], reference.name)
            if number and not stored.any():  # a view may show nothing but a corner without signal
                continue
            try:
                references, kept = References.of(stored)
            except ScoringError as error:
                hint = "take another picture of a good part"
                what = f"{reference.name} cannot be a reference: {error.what}"
                raise ScoringError(what, hint=hint) from None
            yield Bank(
                references,
                np.zeros(len(kept), np.int32),
                np.full(len(kept), number, np.int16),
                rows[kept].astype(np.int16),
                cols[kept].astype(np.int16),
            )

    def _show(self, rgb: Pixels, pixels: Pixels, placement: Placement, view: Affine) -> Pixels:
        """Return the model's input for a view; `pixels` is that of the picture itself."""
        contract = self._tiling.contract
        if self._turned:
            return turn(rgb, view, contract, placement)
        return warp(pixels, view, contract.fill)

    def _in_bank_dtype(self, features: Floats, name: str) -> Floats:
        with np.errstate(over="ignore"):  # the next lines look for infinity
            stored = features.astype(self._draft.bank_dtype)
        if not np.isfinite(stored).all() and np.isfinite(features).all():
            raise ScoringError(
                f"features of {name} do not fit into float16",
                hint="enrol with `bank_dtype='float32'`",
            )
        return stored

    def _build_thinned(self, asked: Coreset, scored: int) -> BankBuild:
        """Build a bank of the most different patches.

        The features of hundreds of pictures do not fit into memory, so they go to a temporary file.
        """
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_COLUMNS, "norms")}
        with _temporary_file() as file:
            for number, reference in enumerate(self._draft.references):
                for part in self.view_banks(reference):
                    with writing(f"features into {tempfile.gettempdir()}"):
                        file.write(np.ascontiguousarray(part.references.features).data)
                    columns["norms"].append(part.references.norms)
                    columns["reference"].append(part.reference + np.int32(number))
                    for name in ("view", "row", "col"):
                        columns[name].append(getattr(part, name))
            with writing(f"features into {tempfile.gettempdir()}"):
                file.flush()
            joined = {name: np.concatenate(parts) for name, parts in columns.items()}
            shape = (len(joined["norms"]), self._tiling.contract.dim)
            features = np.memmap(file, self._draft.bank_dtype, "r", shape=shape)
            selection = thin(features, asked.max_patches, asked.seed, progress=self._thinning)
            taken = np.array(features[selection.rows])
            del features
        bank = Bank(
            References(taken, joined["norms"][selection.rows]),
            *(joined[name][selection.rows] for name in _COLUMNS),
        )
        coreset = asked.model_copy(
            update={
                "considered": shape[0],
                "duplicates": selection.duplicates,
                "radius": selection.radius,
            }
        )
        return BankBuild(bank, scored - self._count_kept(joined["view"]), coreset)


def join_views(parts: Sequence[Bank], merge: float | None) -> Bank:
    """Join the banks of all views of one picture. With `merge`, patches of turned and mirrored
    views that are as near to another one are left out, with 0 those that repeat it alone."""
    whole = Bank(
        References(
            np.concatenate([p.references.features for p in parts]),
            np.concatenate([p.references.norms for p in parts]),
        ),
        *(np.concatenate([getattr(p, k) for p in parts]) for k in _COLUMNS),
    )
    return whole if merge is None else _without_duplicates(whole, merge)


def _without_duplicates(bank: Bank, distance: float) -> Bank:
    """Leave out the patches of turned views that are near another patch of their picture."""
    features, own = bank.references.features, bank.view == 0
    if distance:
        keep = without_near_duplicates(features, own, distance)
    else:
        keep = own
        keep[unique_rows(features)] = True
    return Bank(
        References(bank.references.features[keep], bank.references.norms[keep]),
        *(getattr(bank, k)[keep] for k in _COLUMNS),
    )


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    with writing("a temporary file"):
        file = tempfile.TemporaryFile(prefix="anoco-bank-")  # noqa: SIM115 (closed below)
    try:
        yield file
    finally:
        # Closing writes what is buffered. On a full disk the write above has already failed with
        # an error that says so.
        with suppress(OSError):
            file.close()
