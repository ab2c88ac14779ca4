"""Finds the pictures of an earlier run by its results.jsonl, to enroll or to inspect them again.

A run keeps the picture of a row as a file of its own or names the file that it was read from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from anoco_edge.errors import UsageError
from anoco_edge.results.row_reader import read_results
from anoco_edge.results.rows import FailedRow
from anoco_edge.teaching import PastInspection


def picture_of(results: Path, number: int) -> Path:
    """Return the picture of the row with this id.

    >>> picture_of(Path("missing.jsonl"), 3)
    Traceback (most recent call last):
        ...
    anoco_edge.errors.UsageError: there is no missing.jsonl; it lies in the `folder` of a run
    """
    _check(results)
    row = next((row for row in read_results(results) if row.id == number), None)
    if row is None:
        raise UsageError(f"{results} has no id {number}", hint="ids are its first column")
    if isinstance(row, FailedRow):
        raise UsageError(
            f"id {number} could not be inspected: {row.error}",
            hint="enrol only pictures that were inspected",
        )
    if row.picture is None:
        raise UsageError(
            f"the frame of id {number} was not kept",
            hint="inspect with `save='all'`, or enrol the picture itself",
        )
    path = results.parent / row.picture  # an absolute path stays as it is
    if not path.is_file():
        raise UsageError(
            f"{path}, the picture of id {number}, is no longer there",
            hint="newer overlays replaced it (`keep`), or it was moved; enrol the picture itself",
        )
    return path


def past_inspections(
    results: Path, product: str, warn: Callable[[str], None] = lambda _: None
) -> Iterator[PastInspection]:
    """Yield every inspection of a product whose picture was kept.

    `warn` is called at the end with how many rows were left out, and why.
    """
    _check(results)
    left_out: Counter[str] = Counter()
    for row in read_results(results):
        if isinstance(row, FailedRow):
            continue
        if row.product != product:
            left_out["of another product"] += 1
        elif row.picture is None:
            left_out["not kept (`save='all'` keeps them)"] += 1
        else:
            path = results.parent / row.picture  # an absolute path stays as it is
            yield PastInspection(row.id, path, Path(row.source).name, row.score, row.verdict)
    for why, count in left_out.items():
        warn(f"left out of {results}: {count} {why}")


def _check(results: Path) -> None:
    if not results.is_file():
        raise UsageError(f"there is no {results}", hint="it lies in the `folder` of a run")
