"""Teaching from the frames of a source, with progress on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anoco_edge.cli.builtin import change_new_bundle
from anoco_edge.cli.console import note, plural, progress, warn

if TYPE_CHECKING:
    from anoco_edge.bundle import Bundle
    from anoco_edge.detector import DetectorConfig
    from anoco_edge.sources import Source


def teach_from_source(
    bundle: Bundle,
    config: DetectorConfig,
    source: Source,
    count: int,
    every: float,
    *,
    new: bool = False,
) -> Bundle:
    """Take the next `count` frames as references, and return the bundle that has them.

    On a live source there are `every` so many seconds between two of them. With `new`, the bundle
    that `config` names does not exist, and is made from the built-in backbone.
    """
    if new:
        path = Path(config.bundle)
        return change_new_bundle(path, lambda made: _teach(made, config, source, count, every))[0]
    _teach(bundle, config, source, count, every)
    return bundle


def _teach(
    bundle: Bundle, config: DetectorConfig, source: Source, count: int, every: float
) -> None:
    from anoco_edge.teaching import Teacher, pictures_from_frames

    with progress("teaching", count * 2 + 1) as step:
        teacher = Teacher.open(
            bundle,
            config.engine,
            config.scorer,
            settings=config.settings,
            progress=step,
            on_choice=note,
        )
        pause = every if source.live else 0.0
        pictures = pictures_from_frames(
            source, count, name=source.name, pause=pause, on_picture=step
        )
        change = teacher.enroll(pictures, config.product, new_level="auto")
    for name in change.duplicates:
        warn(f"refused a frame that is there already: {name}")
    for text in change.notes:
        warn(text)
    note(f"taught {plural(len(change.added), 'reference')}: {', '.join(change.added)}")
