"""The tables of the paper as data: `published.json` holds them, number by number.

The figures in that file are percent, as the paper prints them. The functions here return fractions,
as everywhere else. A dash in the paper is null in the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from anoco_edge_calibration.evaluation.dataset import Category, DataSet
from anoco_edge_calibration.evaluation.tables import MEAN, METRICS, EvaluationRow, Shots

__all__ = ["PAPER", "Paper", "PublishedTable", "load_paper", "published_rows"]

PAPER = "paper"
_KEYS = Literal["shots", "method", "venue", "backbone", "rival", "category", "augmentation"]
_OTHERS = ("rival_ms", "anoco_ms", "retrieval_ms", "optimisation_ms", "memory_gb")
PublishedCell = str | float | int | None
PublishedFigures = dict[str, PublishedCell]
"""One row of a table for one data set: what the row is about, then its figures by metric."""


class PublishedTable(BaseModel):
    """One table of the paper.

    A row holds its keys, then all metrics of the first data set, of the second, and so on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    title: str
    keys: tuple[_KEYS, ...]
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = Field(min_length=1)
    shots: int | None = None
    method: str | None = None
    rows: tuple[tuple[PublishedCell, ...], ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_rows(self) -> PublishedTable:
        """Refuse a row that is incomplete, and a percentage that is not one."""
        unknown = set(self.metrics) - set(METRICS) - set(_OTHERS)
        if unknown:
            raise ValueError(f"unknown metrics {sorted(unknown)}")
        width = len(self.keys) + max(1, len(self.datasets)) * len(self.metrics)
        for row in self.rows:
            if len(row) != width:
                raise ValueError(f"{self.id}: {row} has {len(row)} cells, expected {width}")
            for value in row[len(self.keys) :]:
                if value is None:
                    continue
                if isinstance(value, str) or value < 0 or (self.datasets and value > 100):
                    raise ValueError(f"{self.id}: {value!r} in {row} is no figure")
        names = [row[: len(self.keys)] for row in self.rows]
        if len(set(names)) < len(names):
            raise ValueError(f"{self.id} has two rows of the same name")
        return self

    def flat(self) -> list[PublishedFigures]:
        """Return one object for each row and data set, with fractions in place of percent."""
        found: list[PublishedFigures] = []
        for row in self.rows:
            named: PublishedFigures = dict(zip(self.keys, row, strict=False))
            values = row[len(self.keys) :]
            scale = 100 if self.datasets else 1
            for number, dataset in enumerate(self.datasets or (None,)):
                own = values[number * len(self.metrics) : (number + 1) * len(self.metrics)]
                figures = {
                    metric: None if value is None else round(float(value) / scale, 4)
                    for metric, value in zip(self.metrics, own, strict=True)
                }
                common: PublishedFigures = {"table": self.id, "dataset": dataset}
                common |= {"shots": self.shots, "method": self.method, **named}
                found.append({k: v for k, v in common.items() if v is not None})
                found[-1].update(figures)
        return found


class Paper(BaseModel):
    """All tables of the paper, and the backbone that it uses where it names none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    backbone: str
    tables: tuple[PublishedTable, ...]

    def table(self, name: str) -> PublishedTable:
        """Return the table with this id.

        >>> load_paper().table("metrics").rows[0]
        ('ANoCo, L2', 97.6, 97.6, 92.7, 98.7)
        """
        return next(table for table in self.tables if table.id == name)


@cache
def load_paper() -> Paper:
    """Read and check the published tables."""
    text = resources.files(__name__).joinpath("published.json").read_text("utf-8")
    return Paper.model_validate(json.loads(text))


@dataclass(frozen=True)
class PublishedRows:
    """The published rows that belong to a data set, and remarks about them."""

    rows: list[EvaluationRow]
    remarks: list[str]


def published_rows(dataset: DataSet, shots: Sequence[Shots]) -> PublishedRows:
    """Find the rows that the paper published for this data set and these numbers of shots.

    A data set is recognized by its layout, MVTec-AD by the names of its categories. Published
    means are left out unless all categories of the data set are here.
    """
    name = _published_name(dataset)
    if name is None:
        known = "MVTec-AD, VisA, Real-IAD and OCT2017"
        return PublishedRows([], [f"the paper has no figures of {dataset.name}: it has {known}"])
    paper = load_paper()
    rows = [
        _row(dataset.name, one)
        for table in paper.tables
        for one in table.flat()
        if one.get("dataset") == name and one.get("shots") in shots
    ]
    here = {category.name for category in dataset.categories}
    rows = [row for row in rows if row.category in here or row.category == MEAN]
    remarks = [f"published rows are of {name}; ANoCo without a backbone is with {paper.backbone}"]
    count = _COUNTS[name]
    if len(here) != count:
        rows = [row for row in rows if row.category != MEAN]
        remarks.append(
            f"published means are of all {count} categories of {name} and left out: here are "
            f"{len(here)}"
        )
    return PublishedRows(_without_copies(rows), remarks)


_COUNTS = {"MVTec-AD": 15, "VisA": 12, "Real-IAD": 30, "OCT2017": 1}
_BY_LAYOUT = {"visa": "VisA", "real-iad": "Real-IAD", "oct2017": "OCT2017"}


def _published_name(dataset: DataSet) -> str | None:
    if dataset.layout in _BY_LAYOUT:
        return _BY_LAYOUT[dataset.layout]
    listed = {str(row[0]) for row in load_paper().table("categories").rows}
    own: Sequence[Category] = dataset.categories
    return "MVTec-AD" if {category.name for category in own} <= listed else None


def _row(dataset: str, one: PublishedFigures) -> EvaluationRow:
    """Turn a published row into a row of `eval`; without a category it is a mean over all."""
    backbone = f" ({one['backbone']})" if "backbone" in one else ""
    return EvaluationRow(
        dataset,
        str(one.get("category", MEAN)),
        cast("int", one["shots"]),
        MEAN,
        f"{PAPER}: {one['method']}{backbone}",
        {metric: cast("float | None", one.get(metric)) for metric in METRICS},
        dict.fromkeys(METRICS),
        over=0,
        published=True,
    )


def _without_copies(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Merge rows that the paper repeats in several tables, so that each figure is kept once."""
    kept: dict[tuple[str, Shots, str], EvaluationRow] = {}
    for row in rows:
        key = (row.category, row.shots, row.scorer)
        filled = {m: v for m, v in row.figures.items() if v is not None}
        before = kept.get(key)
        figures = {**row.figures, **(before.figures if before else {}), **filled}
        kept[key] = replace(row, figures=figures)
    return list(kept.values())
