"""Calibration with bursts, copies, mixed sizes and groups never promises too much.

Every case knows how many parts its pictures show. It is broken when the words promise a rate that
so many parts do not support, when a copy of a reference calibrates, or when anything but an
AnocoError is raised. Independent parts must calibrate with all of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import make_tiny_bundle, noisy_frame

from anoco_edge.bundle import Threshold
from anoco_edge.demo.render import MATERIALS, render
from anoco_edge.errors import AnocoError, PictureError, UsageError
from anoco_edge.scoring.conformal import best_rate
from anoco_edge.teaching import NewPicture, Settings, Teacher
from tests.attack.campaign import Case, Plan

Picture = NDArray[np.uint8]
# With less, noise and JPEG hide the difference between two circuits (burst_detection.ALIKE).
SIZE = 128
RATE = 0.2


@dataclass(frozen=True)
class PictureSet:
    """Pictures to calibrate with, and what is true about them."""

    name: str
    pictures: tuple[Picture, ...]
    parts: tuple[int, ...]  # the part that each picture shows
    groups: tuple[str, ...] | None = None
    accept_fewer: bool = False
    sigmas: float | None = None
    refused: bool = False  # holds a copy of a reference, or a shape that is not allowed
    independent: bool = False  # must calibrate with every part


def cases(plan: Plan) -> Iterator[Case]:
    """Yield one case for each set of pictures."""
    rng = plan.rng()
    rounds = plan.choose(full=6, short=1)
    for number in range(rounds):
        for material in MATERIALS[: plan.choose(full=3, short=1)]:
            count = int(rng.choice([1, 2, 4]))
            known = [_part(material, 1000 * number + k) for k in range(count)]
            folder = plan.folder / f"{material}{number}.anoco"
            for any_size in (False, True):
                teacher = _enrolled(folder.with_stem(f"{folder.stem}-{any_size}"), known, any_size)
                for made in _sets(rng, material, 1000 * number + 100, known, any_size):
                    name = f"{material} {number}, {count} references, {made.name}"
                    yield Case(name, _tried(teacher, made))


def _enrolled(path: Path, references: Sequence[Picture], any_size: bool) -> Teacher:
    teacher = Teacher.open(make_tiny_bundle(path).path)
    pictures = [NewPicture.from_array(f"reference{k}", rgb) for k, rgb in enumerate(references)]
    teacher.enroll(pictures, settings=Settings({"any_size": any_size}))
    return teacher


def _sets(
    rng: np.random.Generator,
    material: str,
    first: int,
    references: Sequence[Picture],
    any_size: bool,
) -> Iterator[PictureSet]:
    parts = [_part(material, first + k) for k in range(12)]
    alone = PictureSet("independent parts", tuple(parts), tuple(range(12)), independent=True)
    yield alone
    yield replace(alone, name="a baseline", sigmas=1.0, independent=False)
    for shown in (1, 3):
        numbers = [k % shown for k in range(15)]
        frames = tuple(_frame(parts[k], rng) for k in numbers)
        burst = PictureSet(f"15 frames of {shown}", frames, tuple(numbers))
        yield burst
        yield replace(burst, name=f"{burst.name}, fewer accepted", accept_fewer=True)
        stated = tuple(f"part{k}" for k in range(15))
        yield replace(burst, name=f"{burst.name}, stated as 15", groups=stated)
        true = tuple(f"part{k}" for k in numbers)
        yield replace(burst, name=f"{burst.name}, grouped", groups=true, accept_fewer=True)
    for name, change in _CHANGES.items():
        copy = change(references[int(rng.integers(len(references)))], rng)
        mixed = (*parts[:9], copy)
        yield PictureSet(f"a copy ({name})", mixed, tuple(range(10)), refused=True)
    sizes = [(SIZE, SIZE), (2 * SIZE, 2 * SIZE), (SIZE + 3, SIZE), (40, 40)]
    other = tuple(_resized(rgb, sizes[k % 4]) for k, rgb in enumerate(parts))
    yield PictureSet("mixed sizes", other, tuple(range(12)))
    shapes = (*other, _resized(parts[0], (16, 300)), _resized(parts[1], (3 * SIZE, SIZE)))
    yield PictureSet(
        "mixed shapes", shapes, (*range(12), 0, 1), accept_fewer=True, refused=not any_size
    )


def _tried(teacher: Teacher, made: PictureSet) -> str:
    """Return what broke, or an empty string."""
    given = [NewPicture.from_array(f"p{k}", rgb) for k, rgb in enumerate(made.pictures)]
    groups = list(made.groups) if made.groups is not None else None
    try:
        taught = teacher.calibrate(
            given,
            false_reject=RATE,
            groups=groups,
            accept_fewer=made.accept_fewer,
            sigmas=made.sigmas,
            commit=False,
        )
    except (PictureError, UsageError) as error:
        return f"independent parts were refused: {error}" if made.independent else ""
    except AnocoError as error:
        return f"refused for another reason: {error!r}"
    except Exception as error:  # noqa: BLE001 (anything else is what is looked for)
        return f"{type(error).__name__}: {error}"
    if made.refused:
        return "accepted"
    return _promised(taught.product.threshold, made)


def _promised(threshold: Threshold, made: PictureSet) -> str:
    evidence, true = threshold.evidence, len(set(made.parts))
    promises = evidence.exact or "At most" in evidence.words
    if promises and evidence.false_reject < best_rate(true) - 1e-12:
        return f"{true} parts, and: {evidence.words}"
    if made.independent and (evidence.parts != true or not evidence.exact):
        return f"{true} independent parts, and: {evidence.words}"
    return ""


def _part(material: str, seed: int) -> Picture:
    return render(material, seed, size=SIZE).rgb


def _frame(rgb: Picture, rng: np.random.Generator) -> Picture:
    """Draw another frame of the same part: noise, another light, sometimes JPEG."""
    lit = (rgb * rng.uniform(0.97, 1.03)).clip(0, 255)
    frame: Picture = noisy_frame(lit, int(rng.integers(1 << 30)), rng.uniform(0.5, 6))
    return _jpeg(frame, int(rng.integers(60, 96))) if rng.random() < 0.5 else frame


def _jpeg(rgb: Picture, quality: int) -> Picture:
    packed = io.BytesIO()
    Image.fromarray(rgb).save(packed, "JPEG", quality=quality)
    return np.asarray(Image.open(packed).convert("RGB"))


def _resized(rgb: Picture, size: tuple[int, int]) -> Picture:
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BICUBIC))


_CHANGES: dict[str, Callable[[Picture, np.random.Generator], Picture]] = {
    "none": lambda rgb, _: rgb,
    "JPEG": lambda rgb, rng: _jpeg(rgb, int(rng.integers(60, 96))),
    "frame": _frame,
    "size": lambda rgb, rng: _resized(rgb, (SIZE + (side := int(rng.integers(64))), SIZE + side)),
}
