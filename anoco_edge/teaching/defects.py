"""Counts how many given defective parts the threshold of a calibration would miss.

They are read and checked before the calibration changes anything, and scored after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anoco_edge.bundle import Bundle
from anoco_edge.errors import PictureError, ScoringError
from anoco_edge.pipeline.patch_mask import PatchMask
from anoco_edge.teaching.calibration_scores import PartScore
from anoco_edge.teaching.new_pictures import NewPicture
from anoco_edge.teaching.product_change import ProductChange
from anoco_edge.teaching.teacher import Teacher
from anoco_edge.text.plain_text import utf8_text

Step = Callable[[str], None]


def read_defects(
    paths: Sequence[str],
    bundle: Bundle,
    product: str | None,
    good: Sequence[NewPicture],
    step: Step = lambda _: None,
) -> list[NewPicture]:
    """Read pictures of defective parts, and refuse those that are also given as good.

    `good` are the pictures that the calibration takes as good parts. `step` is called with each
    path once it is read.
    """
    current = bundle.product(product)
    patch_mask = PatchMask.of(bundle, current)
    known = {r.pixels: f"is a reference ({r.name})" for r in current.references}
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
    teacher: Teacher,
    change: ProductChange,
    defects: Sequence[NewPicture],
    *,
    warn: Callable[[str], None] = lambda _: None,
    step: Step = lambda _: None,
) -> list[PartScore]:
    """Score defective parts as the changed product would.

    A picture that cannot be scored is left out, because the threshold is set by now; `warn` is
    called with the reason.

    Example::

        from pathlib import Path

        from anoco_edge.teaching import NewPicture, Teacher
        from anoco_edge.teaching.defects import read_defects, score_defects

        teacher = Teacher.open("line.anoco")
        good = [NewPicture.from_file(path) for path in sorted(Path("parts").glob("*.png"))]
        defects = read_defects(["bad.png"], teacher.bundle, None, good)
        change = teacher.calibrate(good, false_reject=0.3, accept_fewer=True, commit=False)
        print(score_defects(teacher, change, defects))
    """
    if not defects:
        return []
    judge, found = teacher.judge(change.require_draft()), []
    for picture in defects:
        try:
            score, _ = judge(picture.rgb, picture.name)
        except ScoringError as error:
            warn(f"{picture.name} is left out: {error.what}")
        else:
            found.append(PartScore(picture.name, picture.name, score))
        step(picture.name)
    return found
