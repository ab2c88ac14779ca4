"""From reference pictures to the bank: every view of every reference, thinned where asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle import Bank, InputContract, Product, Reference
from anoco_edge.bundle.bank import join
from anoco_edge.bundle.schema import Affine, Coreset
from anoco_edge.engines import Engine
from anoco_edge.errors import ScoringError
from anoco_edge.images.preprocess import place, prepare
from anoco_edge.pipeline.augmentation import IDENTITY, warp
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.pipeline.tiling import Tiling
from anoco_edge.scoring.types import Floats, References
from anoco_edge.storage.atomic_files import writing
from anoco_edge.teaching.coreset import thin

Pixels = NDArray[np.uint8]
Load = Callable[[Reference], Pixels]

# A bank depends on these, beside the pictures; where one changes, nothing is taken over.
CHOSEN_BY = ("region", "mask", "bank_dtype", "tiles", "tta", "tta_seed", "coreset")


class BankBuilder:
    """Builds banks of one draft with one engine."""

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
        self._canvas = Tiling(window, draft.tiles)
        self._draft = draft
        self._patch_mask = patch_mask
        self._load = load
        self._progress = progress
        self._thinning = thinning

    def build(self, kept: Mapping[str, Bank]) -> tuple[Bank, dict[str, Any]]:
        """The bank, and what the product records of it. `kept` are banks of single pictures, by
        the hash of their pixels, that are the same as in the generation before."""
        counts = (self._counted(reference) for reference in self._draft.references)
        scored = sum(counts)
        if self._draft.coreset is not None:
            return self._thinned(self._draft.coreset, scored)
        bank = join(
            [kept.get(r.pixels) or self._whole(r) for r in self._draft.references],
        )
        return bank, {"dropped_patches": scored - len(bank)}

    def _views(self, reference: Reference) -> tuple[Affine, ...]:
        return (IDENTITY, *self._draft.views, *reference.views)

    def _counted(self, reference: Reference) -> int:
        there = place(self._canvas.contract, reference.width, reference.height)
        views = self._views(reference)
        return sum(int(self._patch_mask.scored(there, view).sum()) for view in views)

    def _whole(self, reference: Reference) -> Bank:
        parts = list(self._parts(reference))
        return Bank(
            References(
                np.concatenate([p.references.features for p in parts]),
                np.concatenate([p.references.norms for p in parts]),
            ),
            *(np.concatenate([getattr(p, k) for p in parts]) for k in _COLUMNS),
        )

    def _parts(self, reference: Reference) -> Iterator[Bank]:
        """One bank a view; only the picture itself must give one."""
        self._progress(reference.name)
        pixels, placement = prepare(self._load(reference), self._canvas.contract)
        for number, view in enumerate(self._views(reference)):
            scored = self._patch_mask.scored(placement, view)
            if not scored.any():
                continue
            turned = warp(pixels, view, self._canvas.contract.fill) if number else pixels
            features = self._canvas.features(self._engine, turned[None])[0]
            rows, cols = np.nonzero(scored)
            stored = self._stored(features[scored.reshape(-1)], reference.name)
            if number and not stored.any():  # a view may see nothing but a corner without signal
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

    def _stored(self, features: Floats, name: str) -> Floats:
        with np.errstate(over="ignore"):  # looked at in the next line
            stored = features.astype(self._draft.bank_dtype)
        if not np.isfinite(stored).all() and np.isfinite(features).all():
            raise ScoringError(
                f"features of {name} do not fit into float16",
                hint="enrol with `bank_dtype='float32'`",
            )
        return stored

    def _thinned(self, asked: Coreset, scored: int) -> tuple[Bank, dict[str, Any]]:
        """Hundreds of pictures do not fit into memory: their features wait on the disk."""
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_COLUMNS, "norms")}
        with _spool() as file:
            for number, reference in enumerate(self._draft.references):
                for part in self._parts(reference):
                    with writing(f"features into {tempfile.gettempdir()}"):
                        file.write(np.ascontiguousarray(part.references.features).data)
                    columns["norms"].append(part.references.norms)
                    columns["reference"].append(part.reference + np.int32(number))
                    for name in ("view", "row", "col"):
                        columns[name].append(getattr(part, name))
            with writing(f"features into {tempfile.gettempdir()}"):
                file.flush()
            joined = {name: np.concatenate(parts) for name, parts in columns.items()}
            shape = (len(joined["norms"]), self._canvas.contract.dim)
            features = np.memmap(file, self._draft.bank_dtype, "r", shape=shape)
            chosen = thin(features, asked.max_patches, asked.seed, progress=self._thinning)
            taken = np.array(features[chosen.rows])
            del features
        bank = Bank(
            References(taken, joined["norms"][chosen.rows]),
            *(joined[name][chosen.rows] for name in _COLUMNS),
        )
        found = asked.model_copy(
            update={
                "considered": shape[0],
                "duplicates": chosen.duplicates,
                "radius": chosen.radius,
            }
        )
        return bank, {"dropped_patches": scored - shape[0], "coreset": found}


_COLUMNS = ("reference", "view", "row", "col")


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    with writing("a temporary file"):
        file = tempfile.TemporaryFile(prefix="anoco-bank-")  # noqa: SIM115 (closed below)
    try:
        yield file
    finally:
        with suppress(OSError):  # what a full disk did not take was said by the write itself
            file.close()
