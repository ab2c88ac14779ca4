"""The reference bank: patch features of good parts, and the place that each patch comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.tensors import read_tensors
from anoco_edge.errors import BundleError, ScoringError
from anoco_edge.scoring.types import Floats, References

_COLUMNS = {"reference": np.int32, "view": np.int16, "row": np.int16, "col": np.int16}


@dataclass(frozen=True)
class Bank:
    """The features of all reference patches, one row for each patch.

    `reference`, `view`, `row` and `col` say of which picture, of which view of it, and of which
    row and column of the patch grid each patch is.
    """

    references: References
    reference: NDArray[np.int32]
    view: NDArray[np.int16]
    row: NDArray[np.int16]
    col: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.reference)

    def only(self, pictures: list[int]) -> Bank:
        """The bank of these pictures alone, numbered in this order."""
        rows = [np.flatnonzero(self.reference == k) for k in pictures]
        take = np.concatenate(rows) if rows else np.empty(0, np.int64)
        counts = [len(r) for r in rows]
        return Bank(
            References(self.references.features[take], self.references.norms[take]),
            np.repeat(np.arange(len(pictures), dtype=np.int32), counts),
            self.view[take],
            self.row[take],
            self.col[take],
        )

    def to_bytes(self) -> bytes:
        """The bank as the bytes of a safetensors file."""
        from safetensors.numpy import save

        tensors = {"features": self.references.features, "norms": self.references.norms}
        tensors |= {name: getattr(self, name) for name in _COLUMNS}
        data: bytes = save({k: np.ascontiguousarray(v) for k, v in tensors.items()})
        return data

    @staticmethod
    def from_bytes(data: bytes, name: str) -> Bank:
        """Read a bank from the bytes of a safetensors file; `name` is the file's name in errors.

        A bank that could lead to a wrong score is refused.
        """
        tensors = read_tensors(data, f"{name} is not a reference bank")
        wanted = {"features", "norms", *_COLUMNS}
        if set(tensors) != wanted or tensors["features"].ndim != 2:
            raise BundleError(f"{name} holds {sorted(tensors)}, expected {sorted(wanted)}")
        features: Floats = tensors["features"]
        columns = {k: tensors[k] for k in _COLUMNS}
        if any(c.shape != (len(features),) or c.dtype != _COLUMNS[k] for k, c in columns.items()):
            raise BundleError(f"{name}: the provenance columns do not fit its features")
        try:
            references, kept = References.of(features)
        except ScoringError as error:
            raise BundleError(f"{name}: {error.what}", hint="enrol the references again") from None
        if len(kept) < len(features):
            raise BundleError(f"{name} contains patches of zero norm", hint="enrol again")
        return Bank(references, **columns)


def join(banks: list[Bank]) -> Bank:
    """Join banks into one, in which the pictures are numbered in sequence."""
    starts = np.cumsum([0, *(int(b.reference.max()) + 1 for b in banks[:-1])])
    return Bank(
        References(
            np.concatenate([b.references.features for b in banks]),
            np.concatenate([b.references.norms for b in banks]),
        ),
        np.concatenate([b.reference + np.int32(s) for b, s in zip(banks, starts, strict=True)]),
        *(np.concatenate([getattr(b, k) for b in banks]) for k in ("view", "row", "col")),
    )
