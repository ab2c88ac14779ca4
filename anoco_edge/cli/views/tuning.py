"""What `tune` tried and chose, as a table or JSON."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from anoco_edge.cli.console import note, out, plain, plural, warn
from anoco_edge.cli.flags import with_flags
from anoco_edge.cli.views.dry_run import threshold_with_kind
from anoco_edge.teaching import TriedSetting, TuningOutcome

LIMITS = (
    "drawn defects show whether a change of the part is seen, not what your defects look like: "
    "measure real ones with anoco-edge eval"
)


def tuning_report(outcome: TuningOutcome, *, dry_run: bool) -> dict[str, object]:
    """Return everything that was tried, and the change, as JSON."""
    product, elsewhere = outcome.change.product, outcome.better_elsewhere
    return {
        "product": product.name,
        "generation": product.generation,
        "dry_run": dry_run,
        "parts": len(outcome.pictures.scored),
        "parts_left": outcome.pictures.left,
        "chose": [picture.name for picture in outcome.pictures.scored],
        "tried": [_row(one) for one in outcome.tried],
        "chosen": _row(outcome.chosen),
        "better_elsewhere": _row(elsewhere) if elsewhere else None,
        "threshold": product.threshold.model_dump(),
        "notes": [*map(with_flags, outcome.change.notes), LIMITS],
    }


def _row(one: TriedSetting) -> dict[str, object]:
    return {
        "bundle": str(one.bundle),
        "tap": one.tap,
        "size": list(one.size),
        "augment": one.tta,
        "rotations": one.rotations,
        "pooling": one.pooling,
        "separation": one.separation,
        "by_kind": dict(one.by_kind),
        "good_spread": one.scores.spread,
        "gain": one.gain,
        "noise": one.noise,
        "patches": one.patches,
        "ms": one.ms,
        "present": one.present,
        "chosen": one.chosen,
    }


def show_tuning(outcome: TuningOutcome, bundle: Path, *, dry_run: bool) -> None:
    """Print the table, what was chosen and why, and which pictures do not calibrate now."""
    _show_table(outcome)
    chosen, present, pictures = outcome.chosen, outcome.present, outcome.pictures
    if chosen is present:
        out.print(f"nothing is better than {_words(present)} beyond noise: it stays")
    else:
        would = "would take its place" if dry_run else "takes its place"
        out.print(f"{_words(chosen)} is better than {_words(present)} beyond noise and {would}")
    if (other := outcome.better_elsewhere) is not None:
        where = plain(other.bundle)
        out.print(
            f"{where} with {_words(other)} is better still beyond noise. It was not changed: to "
            f"use it, enrol the references there, and calibrate it with other pictures than these",
            soft_wrap=True,
        )
    product = outcome.change.product
    for text in outcome.change.notes:
        warn(text)
    note(LIMITS)
    if dry_run:
        note("nothing was changed; if you choose by this table, calibrate with other pictures")
        return
    out.print(
        f"product [bold]{plain(product.name)}[/bold], generation {product.generation}: threshold "
        f"{threshold_with_kind(product)}"
    )
    note(
        f"{plural(len(pictures.scored), 'part')} chose and will not calibrate; "
        f"{plural(pictures.left, 'part')} of these pictures may"
    )
    note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")


def _show_table(outcome: TuningOutcome) -> None:
    """Print one table for each bundle."""
    for bundle in dict.fromkeys(one.bundle for one in outcome.tried):
        rows = [one for one in outcome.tried if one.bundle == bundle]
        width, height = rows[0].size
        table = Table(
            *("augment", "pooling", "separation", "gain (noise)", "spread", "ms", ""),
            title=plain(f"{bundle.name}: {width}x{height}, {rows[0].tap}"),
        )
        for one in rows:
            table.add_row(
                one.augmentation,
                one.pooling,
                f"{100 * one.separation:.1f} %",
                "" if one.present else f"{100 * one.gain:+.1f} ({100 * one.noise:.1f})",
                f"{one.scores.spread:.2f}",
                f"{one.ms:.1f}",
                _mark(one),
                style="bold" if one.chosen else "",
            )
        out.print(table)


def _mark(one: TriedSetting) -> str:
    if one.present:
        return "stays" if one.chosen else "present"
    return "chosen" if one.chosen else ""


def _words(one: TriedSetting) -> str:
    return f"augmentation {one.augmentation}, pooling {one.pooling}"
