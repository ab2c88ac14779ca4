"""Data sets are read from disk: layout, variations, masks, and draws of references."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_bundle import textured_picture, write_good_pictures

from anoco_edge.errors import PictureError, UsageError
from anoco_edge_calibration.evaluation.dataset import read_defect_mask
from anoco_edge_calibration.evaluation.layouts import open_dataset
from anoco_edge_calibration.evaluation.turning import draw_angle, share_kept, turned, turned_mask


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def nut(tmp_path: Path) -> Path:
    """Write one category: 12 good parts for training, 2 good and 3 defective ones for testing."""
    folder = tmp_path / "nuts" / "nut"
    write_good_pictures(folder / "train" / "good", 12)
    write_good_pictures(folder / "test" / "good", 2, seed=40)
    for name in ("01.jpg", "02.jpg", "10.jpg"):
        save(folder / "test" / "scratch" / name, textured_picture(50))
    mask = np.zeros((80, 96), np.uint8)
    mask[10:20, 30:50] = 255
    save(folder / "ground_truth" / "scratch" / "01.png", mask)
    save(folder / "ground_truth" / "scratch" / "02_mask.png", mask)
    return folder


def test_a_category_and_a_folder_of_categories_are_both_data_sets(nut: Path) -> None:
    one, several = open_dataset(nut), open_dataset(nut.parent)
    assert one.categories == several.categories
    assert (one.name, several.name) == ("nut", "nuts")


def test_what_is_good_and_what_is_wrong(nut: Path) -> None:
    (category,) = open_dataset(nut).categories
    defects = [(picture.path.name, picture.defect) for picture in category.test]
    assert defects == [
        ("good0.png", None),
        ("good1.png", None),
        ("01.jpg", "scratch"),
        ("02.jpg", "scratch"),
        ("10.jpg", "scratch"),
    ]
    assert category.has_both and category.has_masks


def test_a_mask_is_named_like_its_picture_or_with_mask_behind_it(nut: Path) -> None:
    (category,) = open_dataset(nut).categories
    masks = [picture.mask.name if picture.mask else None for picture in category.test]
    assert masks == [None, None, "01.png", "02_mask.png", None]


def test_pictures_come_in_natural_order_and_other_files_are_left_alone(nut: Path) -> None:
    for name in ("notes.txt", "._good0.png", "Thumbs.db"):
        (nut / "train" / "good" / name).write_text("no picture")
    (nut / "license.txt").write_text("")
    (category,) = open_dataset(nut).categories
    assert [path.name for path in category.train] == [f"good{k}.png" for k in range(12)]


def test_categories_are_chosen_by_name(nut: Path) -> None:
    write_good_pictures(nut.parent / "bolt" / "train" / "good", 1)
    write_good_pictures(nut.parent / "bolt" / "test" / "good", 1)
    (nut.parent / "not a category").mkdir()
    assert [c.name for c in open_dataset(nut.parent).categories] == ["bolt", "nut"]
    assert [c.name for c in open_dataset(nut.parent, ["nut", "nut"]).categories] == ["nut"]
    with pytest.raises(UsageError, match="has no category screw; it has bolt, nut"):
        open_dataset(nut.parent, ["nut", "screw"])


def test_what_is_not_in_the_layout_is_told_what_is_expected(tmp_path: Path, nut: Path) -> None:
    expected = r"expected is \[CATEGORY/\]train/good/\*\.png, test/good"
    with pytest.raises(UsageError, match=rf"there is no data set at .*missing; {expected}"):
        open_dataset(tmp_path / "missing")
    with pytest.raises(UsageError, match=rf"there is no train/good in it; {expected}"):
        open_dataset(nut / "test")
    empty = tmp_path / "empty"
    (empty / "train" / "good").mkdir(parents=True)
    with pytest.raises(UsageError, match=rf"train/good holds no picture; {expected}"):
        open_dataset(empty)
    write_good_pictures(empty / "train" / "good", 1)
    with pytest.raises(UsageError, match=rf"test holds no pictures; {expected}"):
        open_dataset(empty)


# ---- draws


def test_more_shots_of_a_seed_contain_the_fewer(nut: Path) -> None:
    (category,) = open_dataset(nut).categories
    draws = [category.draw(shots, seed=7) for shots in (1, 2, 4, 8, 12)]
    for fewer, more in itertools.pairwise(draws):
        assert set(fewer) < set(more)
    assert [len(draw) for draw in draws] == [1, 2, 4, 8, 12]


def test_seeds_draw_differently_and_the_same_seed_alike(nut: Path) -> None:
    (category,) = open_dataset(nut).categories
    assert category.draw(4, seed=1) == category.draw(4, seed=1)
    assert len({tuple(category.draw(4, seed)) for seed in range(5)}) > 1
    assert category.draw(None, seed=3) == list(category.train)


def test_a_draw_is_the_one_that_export_makes(nut: Path) -> None:
    from anoco_edge.cli.requests.export import read_pictures

    (category,) = open_dataset(nut).categories
    taken = read_pictures([str(nut / "train" / "good")], 3, 2)
    assert [picture.name for picture in taken] == [path.name for path in category.draw(3, 2)]


# ---- masks


def test_a_mask_is_white_on_black_or_holds_labels(tmp_path: Path) -> None:
    values = np.zeros((40, 60), np.uint8)
    values[5:15, 5:25] = 255
    values[30:, 50:] = 100  # grey at the rim of a scaled mask
    white = read_defect_mask(save(tmp_path / "white.png", values), (60, 40))
    assert white.dtype == np.bool_ and white.sum() == 200
    labels = np.zeros((40, 60), np.uint8)
    labels[5:15, 5:25], labels[30:, 50:] = 1, 3
    assert read_defect_mask(save(tmp_path / "labels.png", labels), (60, 40)).sum() == 300
    colour = np.zeros((40, 60, 3), np.uint8)
    for channel in range(3):
        colour[channel, :10, channel] = 255
    assert read_defect_mask(save(tmp_path / "colour.png", colour), (60, 40)).sum() == 30


def test_a_mask_that_does_not_fit_or_says_nothing_is_refused(tmp_path: Path) -> None:
    mask = save(tmp_path / "m.png", np.full((40, 60), 255, np.uint8))
    with pytest.raises(PictureError, match=r"m\.png is 60x40, its picture 40x60"):
        read_defect_mask(mask, (40, 60))
    blank = save(tmp_path / "b.png", np.zeros((40, 60), np.uint8))
    with pytest.raises(PictureError, match=r"b\.png marks nothing"):
        read_defect_mask(blank, (60, 40))


# ---- turned test pictures


def test_every_test_picture_gets_an_angle_of_its_own_that_the_seed_draws(nut: Path) -> None:
    as_they_lie = open_dataset(nut)
    first, again, other = (as_they_lie.turn_tests(seed) for seed in (0, 0, 1))
    assert first == again != other
    angles = [picture.degrees for picture in first.categories[0].test]
    assert len(set(angles)) == 5 and all(0 < angle < 360 for angle in angles)
    assert first.categories[0].train == as_they_lie.categories[0].train
    (alone,) = open_dataset(nut.parent, ["nut"]).turn_tests(0).categories
    assert alone == first.categories[0]  # whatever else is measured


def test_a_picture_and_its_mask_turn_together() -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((50, 70), np.bool_)
    mask[5:20, 40:66] = rng.random((15, 26)) < 0.7
    rgb = np.where(mask, 255, 0).astype(np.uint8)[..., None].repeat(3, axis=2)
    for degrees in (33.0, 90.0, 211.5):
        seen = turned(rgb, degrees)[..., 0] > 127
        assert seen.any() and np.array_equal(seen, turned_mask(mask, degrees))
    assert np.array_equal(turned(rgb, 180.0), rgb[::-1, ::-1])
    square = rgb[:50, :50]
    assert np.array_equal(turned(square, 90.0), np.rot90(square))


def test_a_defect_is_not_turned_out_of_the_picture() -> None:
    corner = np.zeros((64, 64), np.bool_)
    corner[:6, :6] = True
    lost = [name for name in map(str, range(200)) if share_kept(corner, draw_angle(0, name)) < 0.5]
    assert lost  # a plain draw loses it now and then
    for name in lost:
        assert share_kept(corner, draw_angle(0, name, corner)) >= 0.5
        assert turned_mask(corner, draw_angle(0, name, corner)).any()
    wide = np.zeros((8, 400), np.bool_)
    wide[:, :4] = True  # leaves the picture at all angles but a few
    kept = [share_kept(wide, draw_angle(0, str(k), wide)) for k in range(30)]
    assert min(kept) >= 0.5


def test_a_mask_that_cannot_be_read_turns_its_picture_all_the_same(nut: Path) -> None:
    (nut / "ground_truth" / "scratch" / "01.png").write_text("no picture")
    (category,) = open_dataset(nut).turn_tests(0).categories
    assert all(picture.degrees for picture in category.test)
    with pytest.raises(PictureError, match="has no mask"):
        category.test[-1].read_mask((96, 80))
