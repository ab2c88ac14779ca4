"""What a calibration found: in words, as JSON, and as a report page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.bundle import Product
from anoco_edge.bundle.evidence import ConformalEvidence
from anoco_edge.cli.console import note, out, plain
from anoco_edge.cli.flags import with_flags
from anoco_edge.cli.views.product_change import augmentation_report
from anoco_edge.errors import StorageError
from anoco_edge.scoring.conformal import group_maxima, percent
from anoco_edge.storage.atomic_files import write_atomic, writing
from anoco_edge.teaching import ProductChange
from anoco_edge.teaching.calibration_scores import (
    PartScore,
    conformal_of,
    read_calibration_scores,
)

if TYPE_CHECKING:
    from anoco_edge_calibration.thresholds.tradeoff import Tradeoff

SHOWN = 3


@dataclass(frozen=True)
class CalibrationResult:
    """A calibration that was made, or with `dry_run` would be, and defects scored after it."""

    change: ProductChange
    defects: Sequence[PartScore]
    warnings: Sequence[str]
    dry_run: bool

    @property
    def product(self) -> Product:
        """The product with its new threshold."""
        return self.change.product

    def tradeoff(self) -> Tradeoff | None:
        """Return missed defects against false rejects, where there are defects."""
        if not self.defects:
            return None
        from anoco_edge_calibration.thresholds.tradeoff import tradeoff

        good = read_calibration_scores(self.product)
        parts = group_maxima([p.score for p in good], [p.part for p in good])
        threshold = conformal_of(self.product).threshold
        return tradeoff(parts, [p.score for p in self.defects], threshold)


def calibration_report(result: CalibrationResult) -> dict[str, object]:
    """Return a calibration as JSON."""
    product, before, curve = result.product, result.change.before, result.tradeoff()
    return {
        "product": product.name,
        "generation": product.generation,
        "dry_run": result.dry_run,
        "threshold": product.threshold.model_dump(),
        "threshold_before": before.threshold.model_dump() if before else None,
        "scores": [p._asdict() for p in read_calibration_scores(product)],
        "defects": [{"picture": p.picture, "score": p.score} for p in result.defects],
        "tradeoff": asdict(curve) if curve else None,
        "augmentation": augmentation_report(product),
        "notes": [with_flags(text) for text in result.warnings],
    }


def show_calibration(result: CalibrationResult, bundle: Path) -> None:
    """Print the threshold and its guarantee, the highest scores, and what is missed."""
    product, before, threshold = result.product, result.change.before, result.product.threshold
    was = ""
    if before is not None and before.threshold.value is not None:
        was = f" (was {before.threshold.value:.4g}, {before.threshold.kind})"
    out.print(
        f"product [bold]{plain(product.name)}[/bold]"
        + ("" if result.dry_run else f", generation {product.generation}")
        + f": threshold [bold]{threshold.value:.4g}[/bold]{was}"
    )
    out.print(plain(threshold.evidence.explanation or ""), soft_wrap=True)
    _show_scores(result)
    if result.dry_run:
        note("nothing was changed")
    else:
        _say_kept(product)
        note(f"undo this with: anoco-edge references undo {bundle} --product {product.name}")


def _show_scores(result: CalibrationResult) -> None:
    product, curve = result.product, result.tradeoff()
    highest = sorted(read_calibration_scores(product), key=lambda p: -p.score)[:SHOWN]
    in_words = ", ".join(f"{p.picture} {p.score:.4g}" for p in highest)
    out.print(
        plain(f"highest scores: {in_words}; look at them: are these parts good?"), soft_wrap=True
    )
    if product.baseline is not None:
        out.print(
            f"scores are energy over what is usual at its place by {product.baseline.sigmas:g} "
            f"sigmas, learnt from {product.baseline.pictures} more pictures",
            soft_wrap=True,
        )
    if curve is not None:
        missed = [p.picture for p in result.defects if p.score <= curve.threshold]
        which = f": {', '.join(missed[:SHOWN])}" if missed else ""
        which += " ..." if len(missed) > SHOWN else ""
        text = f"{len(missed)} of {curve.defects} defective parts would be missed"
        out.print(plain(f"{text} ({percent(curve.at)}){which}"), soft_wrap=True)


def _say_kept(product: Product) -> None:
    """Say what a later change of the references will do to the threshold."""
    files = [p.file for p in product.calibration.pictures] if product.calibration else []
    if None in files:
        note("the pictures were not kept: calibrate again after every change of the references")
    elif files:
        size = sum(file.size for file in files if file) / 1e6
        kept = f"{len(files)} pictures are kept ({size:.1f} MB)"
        note(f"{kept}, to calibrate again with new references")


def write_calibration_page(result: CalibrationResult, folder: Path, name: str) -> None:
    """Write scores.png and report.html."""
    from anoco_edge_calibration.thresholds.calibration_report import (
        score_histogram,
        write_calibration_report,
    )

    product = result.product
    good, found = read_calibration_scores(product), conformal_of(product)
    evidence = product.threshold.evidence
    exact = isinstance(evidence, ConformalEvidence) and evidence.exact
    chart = score_histogram(found, good, result.defects, exact=exact)
    try:
        with writing(str(folder)):
            write_atomic(folder / "scores.png", chart.png())
        write_calibration_report(
            folder / "report.html",
            title=f"Calibration of {name}",
            product=product.name,
            found=found,
            words=evidence.explanation or "",
            exact=exact,
            pictures=good,
            defects=result.defects,
            warnings=[with_flags(text) for text in result.warnings],
        )
    except StorageError as error:
        done = "nothing was changed"
        if not result.dry_run:
            done = "the threshold is set, only the report is not"
        raise StorageError(error.what, hint=f"{done}: choose another --out") from None
    note(f"report: {folder / 'report.html'}")
