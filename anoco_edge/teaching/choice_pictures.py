"""Sets calibration pictures aside that choose the augmentation, so that the others keep a promise.

A threshold promises a false-reject rate because the next good part takes each rank among the
calibration parts with the same probability. Parts that helped to choose how parts are scored score
too low by that choice, so they would break the promise. No part has both roles.
"""

from __future__ import annotations

from collections.abc import Sequence

from anoco_edge.bundle.schema import Calibration, CalibrationPicture
from anoco_edge.scoring.conformal import parts_needed
from anoco_edge.storage.hashes import sha256_bytes

LEAST_PARTS = 4  # fewer say less than the references against each other
MOST_PARTS = 16  # more do not change a median, and each is scored twice
SHARE = 4  # one of so many parts at most: the others make the interval of the rate narrow
SEED = 0


def set_choice_pictures_aside(calibration: Calibration) -> Calibration:
    """Give some parts of a calibration the role `choice`: a quarter of them and MOST_PARTS at most,
    but none that the threshold needs for its rate, and none at all where fewer than LEAST_PARTS
    are left over. Which ones follows from a seed and the pixels, not from the order of the files.

    >>> names, size = "0123456789abcdef", {"width": 8, "height": 8}
    >>> parts = [CalibrationPicture(name=n, group=n, pixels=n * 64, **size) for n in names]
    >>> asked = Calibration(false_reject=0.2, source="pictures", pictures=tuple(parts))
    >>> [p.role for p in set_choice_pictures_aside(asked).pictures].count("choice")
    4
    """
    groups = _in_drawn_order(calibration.pictures)
    count = parts_for_choice(len(groups), calibration)
    chosen = set(groups[:count])
    pictures = tuple(
        p.model_copy(update={"role": "choice"}) if p.group in chosen else p
        for p in calibration.pictures
    )
    return calibration.model_copy(update={"pictures": pictures})


def parts_for_choice(parts: int, calibration: Calibration) -> int:
    """Return how many of so many parts a calibration can set aside; 0 where they are too few.

    >>> asked = Calibration(false_reject=0.01, source="pictures")
    >>> [parts_for_choice(parts, asked) for parts in (99, 102, 103, 200)]
    [0, 0, 4, 16]
    """
    needed = parts_needed(calibration.false_reject)
    if calibration.sigmas is not None:  # as many again fit the baseline
        needed *= 2
    count = min(parts - needed, parts // SHARE, MOST_PARTS)
    return count if count >= LEAST_PARTS else 0


def _in_drawn_order(pictures: Sequence[CalibrationPicture]) -> list[str]:
    """Return the groups in an order that is random, but the same whenever it is drawn."""
    drawn: dict[str, str] = {}
    for picture in pictures:
        lot = sha256_bytes(f"{SEED}:{picture.pixels}".encode())
        drawn[picture.group] = min(lot, drawn.get(picture.group, lot))
    return sorted(drawn, key=lambda group: drawn[group])
