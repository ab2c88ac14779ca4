"""Rows of figures: their means over seeds and categories, and tables for people to read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from rich.table import Table

IMAGE_METRICS = ("image_auroc", "image_aupr", "image_f1max")
PIXEL_METRICS = ("pixel_auroc", "pixel_pro", "pixel_f1max")
METRICS = IMAGE_METRICS + PIXEL_METRICS
MEAN: Literal["mean"] = "mean"
Shots = int | Literal["full"]
Figures = Mapping[str, float | None]
JsonCell = str | int | float | None
"""A value of a flat row in JSON; `bool` is an `int`."""

_HEADERS = ("AUROC", "AUPR", "F1-max", "pixel AUROC", "PRO", "pixel F1-max")
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class EvaluationRow:
    """The figures of one scorer, by metric; None stands for a figure that cannot be computed.

    A row whose seed is `mean` holds means over seeds, and `deviations` holds their sample deviation
    (None for a single seed). A row whose category is `mean` holds means over categories.
    """

    dataset: str
    category: str
    shots: Shots
    seed: int | Literal["mean"]
    scorer: str
    figures: Figures
    deviations: Figures = field(default_factory=dict)
    over: int = 1
    """The number of rows that a mean is computed from."""
    published: bool = False
    """True for a row that the paper printed, which was not measured here."""

    def to_dict(self) -> dict[str, JsonCell]:
        """Return the row as a flat JSON object, as `eval --json` prints it."""
        row: dict[str, JsonCell] = {
            "dataset": self.dataset,
            "category": self.category,
            "shots": self.shots,
            "seed": self.seed,
            "scorer": self.scorer,
            **{metric: self.figures[metric] for metric in METRICS},
        }
        if self.published:
            row["published"] = True
        elif self.seed == MEAN:
            row |= {f"{metric}_std": self.deviations[metric] for metric in METRICS}
            row["seeds"] = self.over
        elif self.category == MEAN:
            row["categories"] = self.over
        return row


def mean_rows(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Return the means over categories for each seed, then all means over seeds.

    Means over seeds are computed for every category and for the mean over categories.
    """
    by_seed = _grouped(rows, lambda row: (row.shots, row.seed, row.scorer))
    over_categories = [
        replace(some[0], category=MEAN, figures=_means(some), over=len(some)) for some in by_seed
    ]
    both = [*rows, *over_categories]
    over_seeds = [
        replace(
            some[0], seed=MEAN, figures=_means(some), deviations=_deviations(some), over=len(some)
        )
        for some in _grouped(both, lambda row: (row.category, row.shots, row.scorer))
    ]
    return over_categories + over_seeds


def incomplete_means(rows: Sequence[EvaluationRow], categories: Sequence[str]) -> list[str]:
    """Return one line for each way in which a mean over categories leaves some of them out."""
    runs = list(dict.fromkeys((row.shots, row.seed) for row in rows))
    lacking: dict[tuple[str, tuple[str, ...]], list[tuple[Shots, int | str]]] = defaultdict(list)
    for run in runs:
        of_run = [row for row in rows if (row.shots, row.seed) == run]
        for kind, metric in (("image", IMAGE_METRICS[0]), ("pixel", PIXEL_METRICS[0])):
            have = {row.category for row in of_run if row.figures[metric] is not None}
            if have and have != set(categories):
                lacking[kind, tuple(name for name in categories if name in have)].append(run)
    lines = []
    for (kind, have_them), where in lacking.items():
        said = ", ".join(f"{shots} shots seed {seed}" for shots, seed in where)
        which = "" if len(where) == len(runs) else f" ({said})"
        without = ", ".join(name for name in categories if name not in have_them)
        lines.append(
            f"mean {kind} figures{which} are of {', '.join(have_them)} and without {without}"
        )
    return lines


def evaluation_table(rows: Sequence[EvaluationRow], title: str) -> Table:
    """Return the means over seeds as a table for a terminal.

    Figures are percent, and the best scorer of each category is bold.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("category", "shots", "scorer"):
        table.add_column(name, no_wrap=True)
    for name in _HEADERS:
        table.add_column(name, justify="right")
    for some in _tabled(rows):
        for row, best in some:
            cells = (Text(_cell(row, m), style="bold" if m in best else "") for m in METRICS)
            last = row is some[-1][0]
            table.add_row(*(Text(t) for t in _names(row)), *cells, end_section=last)
    return table


def evaluation_markdown(rows: Sequence[EvaluationRow]) -> str:
    """Return the same table as Markdown."""
    lines = [
        f"| category | shots | scorer | {' | '.join(_HEADERS)} |",
        "|---|---|---" + "|---:" * len(METRICS) + "|",
    ]
    for some in _tabled(rows):
        for row, best in some:
            cells = (f"**{_cell(row, m)}**" if m in best else _cell(row, m) for m in METRICS)
            names = (text.replace("|", "\\|") for text in _names(row))
            lines.append(f"| {' | '.join([*names, *cells])} |")
    return "\n".join(lines)


def _grouped(
    rows: Iterable[EvaluationRow], key: Callable[[EvaluationRow], _Key]
) -> list[list[EvaluationRow]]:
    groups: dict[_Key, list[EvaluationRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def _known(rows: Sequence[EvaluationRow], metric: str) -> list[float]:
    return [value for row in rows if (value := row.figures[metric]) is not None]


def _means(rows: Sequence[EvaluationRow]) -> Figures:
    return {m: fmean(known) if (known := _known(rows, m)) else None for m in METRICS}


def _deviations(rows: Sequence[EvaluationRow]) -> Figures:
    return {m: stdev(known) if len(known := _known(rows, m)) > 1 else None for m in METRICS}


def _tabled(rows: Sequence[EvaluationRow]) -> Iterator[list[tuple[EvaluationRow, set[str]]]]:
    """Yield the means over seeds by category and shots, each row with the metrics it is best in.

    The mean over a single category repeats that category and is left out. Published rows come
    after measured ones and do not compete with them.
    """
    means = [row for row in rows if row.seed == MEAN]
    single = len({row.category for row in means} - {MEAN}) == 1
    shown = [row for row in means if not (single and row.category == MEAN)]
    for some in _grouped(shown, lambda row: (row.category, row.shots)):
        measured = [row for row in some if not row.published]
        several = len(measured) > 1
        best = {m: max(known) for m in METRICS if several and (known := _known(measured, m))}
        yield [(row, {m for m in best if row.figures[m] == best[m]}) for row in measured] + [
            (row, set()) for row in some if row.published
        ]


def _names(row: EvaluationRow) -> tuple[str, str, str]:
    return row.category, str(row.shots), row.scorer


def _cell(row: EvaluationRow, metric: str) -> str:
    value, deviation = row.figures[metric], row.deviations.get(metric)
    if value is None:
        return "-"
    return f"{100 * value:.1f}" + ("" if deviation is None else f" ±{100 * deviation:.1f}")
