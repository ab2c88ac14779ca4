"""Pictures of one part are told from pictures of several, and copies of references from others."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import noisy_frame

from anoco_edge.demo.render import MATERIALS, render
from anoco_edge.teaching.burst_detection import (
    MOST_COMPARED,
    NARROW,
    SIDE,
    PartMatcher,
    Thumbnail,
    thumbnail,
)

Picture = NDArray[np.uint8]


@cache
def part(material: str, seed: int) -> Picture:
    return render(material, seed, size=128).rgb


def blocks(seed: int) -> Picture:
    """Draw a part that has nothing in common with others."""
    tile = np.random.default_rng(seed).integers(30, 220, (6, 8, 3), dtype=np.uint8)
    return np.kron(tile, np.ones((16, 16, 1), np.uint8))


def jpeg(rgb: Picture, quality: int) -> Picture:
    packed = io.BytesIO()
    Image.fromarray(rgb).save(packed, "JPEG", quality=quality)
    return np.asarray(Image.open(packed).convert("RGB"))


def lit(rgb: Picture, gain: float) -> Picture:
    return (rgb * gain).round().clip(0, 255).astype(np.uint8)


def resized(rgb: Picture, factor: float) -> Picture:
    size = (round(rgb.shape[1] * factor), round(rgb.shape[0] * factor))
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.BICUBIC))


def matcher_of(references: Sequence[Picture]) -> PartMatcher:
    return PartMatcher(references)


def thumbnails(pictures: Sequence[Picture]) -> list[Thumbnail]:
    return [thumbnail(rgb) for rgb in pictures]


@pytest.mark.parametrize("references", [1, 2, 4])
@pytest.mark.parametrize("material", MATERIALS)
def test_independent_parts_are_neither_copies_nor_a_burst(material: str, references: int) -> None:
    parts = [part(material, seed) for seed in range(34)]
    for draw in range(6):
        order = np.random.default_rng(draw).permutation(34)
        matcher = matcher_of([parts[k] for k in order[:references]])
        calibration_parts = thumbnails([parts[k] for k in order[references : references + 30]])
        assert matcher.copies(calibration_parts) == {}
        assert len(set(matcher.parts(calibration_parts))) == 30
        spread = matcher.spread(calibration_parts)
        assert spread is not None and spread > NARROW
        assert not matcher.references_are_one_part()


@given(
    material=st.sampled_from(MATERIALS),
    seed=st.integers(0, 20),
    sigma=st.floats(0.5, 8),
    quality=st.integers(60, 95),
    light=st.floats(-0.03, 0.03),
)
@settings(derandomize=True, deadline=None, max_examples=30)
def test_a_burst_that_is_the_whole_set_is_one_part(
    material: str, seed: int, sigma: float, quality: int, light: float
) -> None:
    one = part(material, seed)
    frames = [noisy_frame(lit(one, 1 + light * k / 8), seed + k, sigma) for k in range(8)]
    frames[::2] = [jpeg(frame, quality) for frame in frames[::2]]
    matcher = matcher_of([part(material, 30 + k) for k in range(2)])
    assert set(matcher.parts(thumbnails(frames))) == {0}
    assert matcher.copies(thumbnails(frames)) == {}


@pytest.mark.parametrize("material", MATERIALS)
def test_three_parts_of_ten_frames_are_three_in_any_order(material: str) -> None:
    frames = [noisy_frame(part(material, k % 3), k, 4) for k in range(30)]
    found = matcher_of([part(material, 9)]).parts(thumbnails(frames))
    assert found == [k % 3 for k in range(30)]


@pytest.mark.parametrize(
    "change",
    [
        lambda rgb: jpeg(rgb, 60),
        lambda rgb: jpeg(rgb, 90),
        lambda rgb: resized(rgb, 0.75),
        lambda rgb: resized(rgb, 1.5),
        lambda rgb: lit(rgb, 1.03),
        lambda rgb: lit(rgb, 0.97),
        lambda rgb: noisy_frame(rgb, 1, 4),
        lambda rgb: rgb[1:-1, 1:-1],
        lambda rgb: rgb[:, 1:],
        lambda rgb: np.pad(rgb, ((1, 0), (0, 0), (0, 0)), "edge")[:-1],
        lambda rgb: jpeg(noisy_frame(lit(rgb[:-1, 1:], 1.02), 1, 2), 75),
    ],
    ids=[
        "jpeg60",
        "jpeg90",
        "smaller",
        "larger",
        "brighter",
        "darker",
        "noise",
        "cropped",
        "cut",
        "shifted",
        "all",
    ],
)
@pytest.mark.parametrize("material", MATERIALS)
def test_changed_copies_of_references_are_found(
    material: str, change: Callable[[Picture], Picture]
) -> None:
    references = [part(material, seed) for seed in range(3)]
    others = [part(material, 10 + seed) for seed in range(3)]
    pictures = [others[0], change(references[2]), others[1], change(references[0]), others[2]]
    assert matcher_of(references).copies(thumbnails(pictures)) == {1: 2, 3: 0}


def test_a_still_camera_teaches_one_part() -> None:
    frames = [noisy_frame(part("washer", 1), k) for k in range(4)]
    assert matcher_of(frames).references_are_one_part()
    assert not matcher_of([*frames, part("washer", 2)]).references_are_one_part()
    assert not matcher_of(frames[:1]).references_are_one_part()  # one reference is always one part


def test_a_shaken_camera_shows_in_the_spread() -> None:
    """Frames shifted by a few pixels are not copies, but differ less than parts do."""
    one = part("cloth", 1)
    frames = [np.roll(one, (k % 3, k // 3), (0, 1)) for k in range(9)]
    spread = matcher_of([blocks(1), blocks(2)]).spread(thumbnails(frames))
    assert spread is not None and spread <= NARROW


def test_known_groups_and_chains_are_joined() -> None:
    pictures = [blocks(1), blocks(2), blocks(3), noisy_frame(blocks(1), 0)]
    matcher = matcher_of([blocks(9)])
    assert matcher.parts(thumbnails(pictures)) == [0, 1, 2, 0]
    assert matcher.parts(thumbnails(pictures), ["a", "a", "b", "c"]) == [0, 0, 2, 0]
    # Each frame is close to the next, but the last is far from the first.
    first, last = thumbnail(blocks(1)), thumbnail(blocks(2))
    chain = [first + (last - first) * np.float32(k / 99) for k in range(100)]
    assert set(matcher.parts(chain)) == {0}
    assert matcher.parts([chain[0], chain[-1]]) == [0, 1]


def test_what_has_no_contrast_is_never_alike() -> None:
    """The sheets differ only in their light, so nothing shows whether they are the same one."""
    sheets = [np.full((32, 32, 3), level, np.uint8) for level in (60, 61, 100, 200)]
    matcher = matcher_of(sheets[:1])
    assert matcher.parts(thumbnails(sheets)) == [0, 1, 2, 3]
    assert matcher.copies(thumbnails(sheets)) == {} and matcher.spread(thumbnails(sheets)) is None
    assert matcher_of([blocks(1)]).copies(thumbnails(sheets)) == {}


def test_noise_without_a_part_is_not_one_part() -> None:
    """Where noise hides everything else, all pictures differ only by noise."""
    grey = np.full((64, 64, 3), 128, np.uint8)
    frames = [noisy_frame(grey, seed, 6) for seed in range(12)]
    assert len(set(matcher_of(frames[:2]).parts(thumbnails(frames[2:])))) == 10


def test_one_odd_reference_does_not_make_copies_of_parts() -> None:
    """Noise changes a picture without contrast a lot, which says nothing about the others."""
    faint = noisy_frame(np.full((128, 128, 3), 128, np.uint8), 0, 6)
    for references in (
        [part("circuit", 0), faint],
        [faint, part("circuit", 0), part("circuit", 1)],
    ):
        pictures = thumbnails([part("circuit", 10 + seed) for seed in range(10)])
        assert matcher_of(references).copies(pictures) == {}
        assert len(set(matcher_of(references).parts(pictures))) == 10


def test_only_the_region_of_interest_is_compared() -> None:
    """The belt around the part changes, but the part does not."""
    wanted = np.zeros((SIDE, SIDE), np.bool_)
    wanted[SIDE // 4 : -SIDE // 4, SIDE // 4 : -SIDE // 4] = True
    frames = []
    for k in range(5):
        frame = noisy_frame(blocks(50 + k), k)
        frame[16:-16, 24:-24] = noisy_frame(blocks(1), k)[16:-16, 24:-24]
        frames.append(frame)
    reference = [blocks(9)]
    inside = PartMatcher(reference, wanted)
    assert set(inside.parts(thumbnails(frames))) == {0}
    assert matcher_of(reference).parts(thumbnails(frames)) == list(range(5))
    nothing = PartMatcher(reference, np.zeros((SIDE, SIDE), np.bool_))
    assert nothing.parts(thumbnails(frames)) == list(range(5))


def test_of_many_pictures_a_choice_is_compared() -> None:
    rng = np.random.default_rng(4)
    many = list(rng.uniform(0, 255, (2 * MOST_COMPARED, SIDE, SIDE)).astype(np.float32))
    spread = matcher_of([blocks(1)]).spread(many)
    assert spread is not None and 0.9 < spread < 1.1
    assert matcher_of([blocks(1)]).spread(many[:3]) is None  # three pairs are too few
