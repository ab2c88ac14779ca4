"""Defective parts beside a calibration: read before it changes anything, scored after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anoco_edge.bundle import Bundle
from anoco_edge.cli.console import Steps, warn
from anoco_edge.errors import PictureError, ScoringError, UsageError
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.teaching import NewPicture, ProductChange, Teacher
from anoco_edge.text.plain_text import utf8_text

Scored = tuple[str, str, float]  # a picture's name, the part it shows, its score


def refuse_glob(pictures: Sequence[str], with_defects: Sequence[str]) -> None:
    """Of an unquoted glob the option gets the first file; the other defects become good parts."""
    files = filter(os.path.isfile, with_defects)  # unlike Path.is_file it takes any pattern
    beside = {Path(bad).parent.resolve(): bad for bad in files}
    for good in filter(os.path.isfile, pictures):
        bad = beside.get(Path(good).parent.resolve())
        if bad is not None:
            raise UsageError(
                f"{good} counts as a good part, but lies beside {bad} of --with-defects",
                hint=f"quote the glob, or give the folder: --with-defects {Path(bad).parent}/",
            )


def read_defects(
    paths: Sequence[str],
    bundle: Bundle,
    product: str | None,
    good: Sequence[NewPicture],
    step: Steps,
) -> list[NewPicture]:
    """Whatever is wrong with one shows before the threshold is changed."""
    taught = bundle.product(product)
    patch_mask = PatchMask.of(bundle, taught)
    known = {r.pixels: f"is a reference ({r.name})" for r in taught.references}
    known |= {p.pixels: f"as good ({p.name})" for p in good}
    defects = []
    for path in paths:
        picture = NewPicture.from_file(path)
        patch_mask.check_size(picture.width, picture.height, path)
        if picture.pixels in known:
            raise PictureError(
                f"{path} is given as defective, and {known[picture.pixels]}",
                hint="decide which it is",
            )
        defects.append(replace(picture, name=utf8_text(path)))
        step(path)
    return defects


def score_defects(
    teacher: Teacher, taught: ProductChange, defects: Sequence[NewPicture], step: Steps
) -> list[Scored]:
    """By the new threshold's bank; one that cannot be scored is said and left out."""
    if not defects:
        return []
    assert taught.draft is not None
    judge, found = teacher.judge(taught.draft), []
    for picture in defects:
        try:
            score, _ = judge(picture.rgb, picture.name)
        except ScoringError as error:  # the threshold is set by now
            warn(f"{picture.name} is left out: {error.what}")
        else:
            found.append((picture.name, picture.name, score))
        step(picture.name)
    return found
