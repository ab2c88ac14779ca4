"""An export with its progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anoco_edge.cli.console import err, plain
from anoco_edge.errors import missing

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle
    from anoco_edge_export import ExportedBundle


def export_bundle(
    backbone: str,
    target: Path,
    *,
    targets: Sequence[str] = (),
    batch: int = 1,
    overwrite: bool = False,
    prepare: Callable[[Bundle], None] = lambda _: None,
    **options: Any,
) -> ExportedBundle:
    """Export a backbone and write the bundle, as `anoco_edge_export.export_bundle` does.

    `options` are the fields of `anoco_edge_export.ExportOptions`, which is imported late.
    `prepare` may change the new bundle before it takes its place, and shows its own progress.
    """
    try:
        from anoco_edge_export import ExportOptions, export_bundle
    except ImportError:
        raise missing("anoco_edge_export", "export", "to export a backbone") from None
    with err.status(f"exporting {backbone}") as status:

        def show(text: str) -> None:
            status.update(plain(f"exporting {backbone}: {text}"))

        def building(phase: str, step: int, total: int) -> None:
            show(f"building a plan: {phase.lower()}, {step} of {total}")

        def stop_and_prepare(bundle: Bundle) -> None:
            status.stop()
            prepare(bundle)

        return export_bundle(
            backbone,
            target,
            ExportOptions(**options),
            targets=targets,
            batch=batch,
            overwrite=overwrite,
            progress=show,
            building=building,
            prepare=stop_and_prepare,
        )
