"""The reference bank: patch features of good parts, and the place that each patch comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from anoco_edge.bundle.tensors import Tensors, read_tensors, tensor_places
from anoco_edge.errors import BundleError, ScoringError
from anoco_edge.scoring.types import Floats, References

_COLUMNS = {"reference": np.int32, "view": np.int16, "row": np.int16, "col": np.int16}
_ENROLL = "enroll the references again"  # the native reader says the same


@dataclass(frozen=True)
class BankIndex:
    """Where the patches of a bank come from, without their features."""

    reference: NDArray[np.int32]
    view: NDArray[np.int16]
    row: NDArray[np.int16]
    col: NDArray[np.int16]

    @staticmethod
    def from_stream(stream: BinaryIO, size: int, name: str) -> BankIndex:
        """Read the columns of a bank's file of this size, and not its features."""
        places = tensor_places(stream, size, f"{name} is not a reference bank")
        _check_names(set(places), name)
        columns = {key: places[key].read(stream) for key in _COLUMNS}
        return BankIndex.from_tensors(columns, next(iter(places["features"].shape), 0), name)

    @staticmethod
    def from_tensors(tensors: Tensors, rows: int, name: str) -> BankIndex:
        """Take the four columns of a bank with this many rows; other columns are refused."""
        columns = {key: tensors[key] for key in _COLUMNS}
        if any(c.shape != (rows,) or c.dtype != _COLUMNS[key] for key, c in columns.items()):
            raise BundleError(
                f"{name}: the provenance columns do not fit its features", hint=_ENROLL
            )
        return BankIndex(**columns)


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

    @property
    def index(self) -> BankIndex:
        """The provenance of the patches alone."""
        return BankIndex(self.reference, self.view, self.row, self.col)

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
        _check_names(set(tensors), name)
        features: Floats = tensors["features"]
        if features.ndim != 2:
            raise BundleError(
                f"{name}: the features have {features.ndim} axes, expected 2", hint=_ENROLL
            )
        index = BankIndex.from_tensors(tensors, len(features), name)
        try:
            references, kept = References.of(features)
        except ScoringError as error:
            raise BundleError(f"{name}: {error.what}", hint=_ENROLL) from None
        if len(kept) < len(features):
            raise BundleError(f"{name} contains patches of zero norm", hint=_ENROLL)
        return Bank(references, index.reference, index.view, index.row, index.col)


def _check_names(names: set[str], bank: str) -> None:
    wanted = {"features", "norms", *_COLUMNS}
    if names != wanted:
        raise BundleError(f"{bank} holds {sorted(names)}, expected {sorted(wanted)}", hint=_ENROLL)


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
