"""What a change would do, for `--dry-run`: threshold, calibration scores, verdicts that flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from anoco_edge.bundle import Product
from anoco_edge.cli.console import counted, note, out, plain, warn
from anoco_edge.errors import AnocoError, UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.teaching import ProductChange, Teacher

SHOWN = 20
NOT_SCORED = "not scored"


@dataclass(frozen=True)
class Effect:
    """One picture before and after the change."""

    picture: str
    kind: str  # "calibration" or "past"
    score: float | None
    new_score: float | None
    verdict: str
    new_verdict: str

    @property
    def flips(self) -> bool:
        """A picture that is no longer scored has no new verdict to flip to."""
        return self.new_verdict not in (self.verdict, NOT_SCORED)


def effects_of(teacher: Teacher, change: ProductChange, past: Path | None) -> list[Effect]:
    """Calibration pictures as they were scored, and pictures of a past run scored anew."""
    effects = list(_calibration_effects(change))
    if past is not None:
        effects += _past_effects(teacher, change, past)
    return effects


def preview_report(change: ProductChange, effects: list[Effect]) -> dict[str, Any]:
    """For JSON."""
    before = change.before
    return {
        "dry_run": True,
        "product": change.product.name,
        "added": list(change.added),
        "duplicates": list(change.duplicates),
        "references": [r.name for r in change.product.references],
        "threshold_before": before.threshold.model_dump() if before else None,
        "threshold": change.product.threshold.model_dump(),
        "notes": list(change.notes),
        "flips": sum(e.flips for e in effects),
        "effects": [{**asdict(e), "flips": e.flips} for e in effects],
    }


def show_preview(change: ProductChange, effects: list[Effect]) -> None:
    """In words and a table: what flips first, then what moves most."""
    product, before = change.product, change.before
    out.print(
        f"product [bold]{plain(product.name)}[/bold] would have "
        f"{counted(len(product.references), 'reference')}"
        + (f" instead of {len(before.references)}" if before else "")
    )
    out.print(f"threshold: {named_threshold(before)} -> {named_threshold(product)}")
    for text in change.notes:
        warn(text)
    for kind, words in (("calibration", "calibration pictures"), ("past", "past verdicts")):
        if some := [e for e in effects if e.kind == kind]:
            out.print(_flips(some, words), soft_wrap=True)
    if effects:
        table = Table("picture", "of", "score", "would be", "verdict", "would be")
        ranked = sorted(effects, key=lambda e: (not e.flips, -_moved(e)))
        for e in ranked[:SHOWN]:
            style = "bold yellow" if e.flips else ""
            table.add_row(
                plain(e.picture),
                e.kind,
                _number(e.score),
                _number(e.new_score),
                e.verdict,
                e.new_verdict,
                style=style,
            )
        out.print(table)
        if len(ranked) > SHOWN:
            note(f"and {len(ranked) - SHOWN} more; --json lists all")
    note("nothing was changed")


def _flips(effects: Sequence[Effect], words: str) -> str:
    """How many flip, and which way.

    >>> _flips([Effect("a", "past", 2.0, 1.0, "anomalous", "good")], "past verdicts")
    '1 of 1 past verdicts would flip (1 from anomalous to good)'
    """
    ways = Counter(f"from {e.verdict} to {e.new_verdict}" for e in effects if e.flips)
    named = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    text = f"{ways.total()} of {len(effects)} {words} would flip"
    return f"{text} ({named})" if named else text


def _calibration_effects(change: ProductChange) -> Iterator[Effect]:
    """By score and threshold alone: a minimum area may still let a part pass."""
    before, after = change.before, change.product
    if before is None or before.calibration is None:
        return
    scores = {p.pixels: p.score for p in after.calibration.pictures} if after.calibration else {}
    for picture in before.calibration.pictures:
        if picture.score is None:
            continue
        new = scores.get(picture.pixels)
        yield Effect(
            picture.name,
            "calibration",
            picture.score,
            new,
            _over(picture.score, before),
            _over(new, after),
        )


def _past_effects(teacher: Teacher, change: ProductChange, past: Path) -> Iterator[Effect]:
    from anoco_edge.sinks.folder import read_results

    if not past.is_file():
        raise UsageError(f"there is no {past}", hint="it lies in the --out folder of infer")
    assert change.draft is not None
    judge = teacher.judge(change.draft)
    left_out: Counter[str] = Counter()
    for row in read_results(past):
        if row.get("error"):
            continue
        if row.get("product") != change.product.name:
            left_out["of another product"] += 1
            continue
        if not {"picture", "source", "score", "verdict"} <= row.keys():
            left_out["not kept (infer --save all keeps them)"] += 1
            continue
        path = past.parent / row["picture"]  # an absolute path stays what it is
        try:
            score, verdict = judge(read_picture(path), str(path))
        except AnocoError as error:
            warn(f"id {row['id']} is left out: {error}")
            continue
        name = Path(row["source"]).name
        yield Effect(name, "past", row["score"], score, row["verdict"], verdict)
    for why, count in left_out.items():
        warn(f"left out of {past}: {count} {why}")


def _over(score: float | None, product: Product) -> str:
    if product.threshold.value is None:
        return "uncalibrated"
    if score is None:
        return NOT_SCORED
    return "anomalous" if score > product.threshold.value else "good"


def _moved(effect: Effect) -> float:
    if effect.score is None or effect.new_score is None:
        return float("inf")
    return abs(effect.new_score - effect.score)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def named_threshold(product: Product | None) -> str:
    """The threshold with its kind."""
    if product is None or product.threshold.value is None:
        return "none"
    return f"{product.threshold.value:.4g} ({product.threshold.kind})"
