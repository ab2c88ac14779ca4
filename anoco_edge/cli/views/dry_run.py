"""What a change would do, for `--dry-run`: threshold, calibration scores, verdicts that flip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from anoco_edge.bundle import Product
from anoco_edge.cli.console import note, out, plain, plural, warn
from anoco_edge.cli.flags import with_flags
from anoco_edge.teaching import (
    Effect,
    ProductChange,
    Teacher,
    calibration_effects,
    past_effects,
)

SHOWN = 20


def find_effects(teacher: Teacher, change: ProductChange, past: Path | None) -> list[Effect]:
    """Return the effects on calibration pictures and, with `past`, on pictures of that run."""
    effects = calibration_effects(change)
    if past is not None:
        from anoco_edge.results.past_pictures import past_inspections

        inspections = past_inspections(past, change.product.name, warn)
        effects += past_effects(teacher, change, inspections, warn)
    return effects


def dry_run_report(change: ProductChange, effects: Sequence[Effect]) -> dict[str, object]:
    """Return a change that was not made, and its effects, as JSON."""
    before = change.before
    return {
        "dry_run": True,
        "product": change.product.name,
        "added": list(change.added),
        "duplicates": list(change.duplicates),
        "references": [r.name for r in change.product.references],
        "threshold_before": before.threshold.model_dump() if before else None,
        "threshold": change.product.threshold.model_dump(),
        "notes": [with_flags(text) for text in change.notes],
        "flips": sum(e.flips for e in effects),
        "effects": [{**asdict(e), "flips": e.flips} for e in effects],
    }


def show_dry_run(change: ProductChange, effects: Sequence[Effect]) -> None:
    """Print what would change, in words and a table: what flips first, then what moves most."""
    product, before = change.product, change.before
    out.print(
        f"product [bold]{plain(product.name)}[/bold] would have "
        f"{plural(len(product.references), 'reference')}"
        + (f" instead of {len(before.references)}" if before else "")
    )
    out.print(f"threshold: {threshold_with_kind(before)} -> {threshold_with_kind(product)}")
    for text in change.notes:
        warn(text)
    for kind, words in (("calibration", "calibration pictures"), ("past", "past verdicts")):
        if some := [e for e in effects if e.kind == kind]:
            out.print(_flips(some, words), soft_wrap=True)
    if effects:
        _show_effects(effects)
    note("nothing was changed")


def _show_effects(effects: Sequence[Effect]) -> None:
    table = Table("picture", "of", "score", "would be", "verdict", "would be")
    ranked = sorted(effects, key=lambda e: (not e.flips, -_score_change(e)))
    for e in ranked[:SHOWN]:
        table.add_row(
            plain(e.picture),
            e.kind,
            _number(e.score),
            _number(e.new_score),
            e.verdict,
            e.new_verdict,
            style="bold yellow" if e.flips else "",
        )
    out.print(table)
    if len(ranked) > SHOWN:
        note(f"and {len(ranked) - SHOWN} more; --json lists all")


def _flips(effects: Sequence[Effect], words: str) -> str:
    """Return how many verdicts flip, and which way.

    >>> _flips([Effect("a", "past", 2.0, 1.0, "anomalous", "good")], "past verdicts")
    '1 of 1 past verdicts would flip (1 from anomalous to good)'
    """
    ways = Counter(f"from {e.verdict} to {e.new_verdict}" for e in effects if e.flips)
    ways_in_words = ", ".join(f"{count} {way}" for way, count in ways.most_common())
    text = f"{ways.total()} of {len(effects)} {words} would flip"
    return f"{text} ({ways_in_words})" if ways_in_words else text


def _score_change(effect: Effect) -> float:
    if effect.score is None or effect.new_score is None:
        return float("inf")
    return abs(effect.new_score - effect.score)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def threshold_with_kind(product: Product | None) -> str:
    """Return the threshold of a product with its kind, or "none"."""
    if product is None or product.threshold.value is None:
        return "none"
    return f"{product.threshold.value:.4g} ({product.threshold.kind})"
