"""Data sets in their published layouts, in miniature, are recognized or read as the user says."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import defective_picture, fails, ok
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.errors import UsageError
from anoco_edge_calibration.evaluation.dataset import read_defect_mask
from anoco_edge_calibration.evaluation.layouts import LAYOUTS, open_dataset

MASK = np.zeros((80, 96), np.uint8)
MASK[30:55, 30:60] = 255


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def good(path: Path, seed: int) -> Path:
    return save(path, textured_picture(seed))


def bad(path: Path, seed: int) -> Path:
    return save(path, defective_picture(seed))


def make_folders(root: Path, word: str = "good", suffix: str = "_mask.png") -> None:
    for category in ("01", "02"):
        for k in range(4):
            good(root / category / "train" / word / f"{k:03}.png", k)
        for k in range(2):
            good(root / category / "test" / word / f"{k:03}.png", 20 + k)
            bad(root / category / "test" / "ko" / f"{k:03}.png", 40 + k)
            save(root / category / "ground_truth" / "ko" / f"{k:03}{suffix}", MASK)


def make_btad(root: Path) -> None:
    make_folders(root, "ok", ".bmp")


def make_visa(root: Path) -> None:
    """Write a VisA data set, whose csv also marks half of the good pictures as training data.

    Its masks hold labels.
    """
    rows = [["object", "split", "label", "image", "mask"]]
    for name in ("candle", "pcb1"):
        data = Path(name, "Data")
        for k in range(6):
            path = data / "Images" / "Normal" / f"{k:04}.JPG"
            good(root / path, k)
            rows.append([name, "train" if k < 4 else "test", "normal", str(path), ""])
        for k in range(2):
            path, mask = (data / a / "Anomaly" for a in ("Images", "Masks"))
            bad(root / path / f"{k:03}.JPG", 40 + k)
            save(root / mask / f"{k:03}.png", (MASK > 0).astype(np.uint8) * (k + 1))
            rows.append(
                [name, "test", "anomaly", str(path / f"{k:03}.JPG"), str(mask / f"{k:03}.png")]
            )
    (root / "split_csv").mkdir(parents=True)
    with (root / "split_csv" / "1cls.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def make_real_iad(root: Path) -> None:
    for name in ("audiojack", "usb"):
        train, test = [], []
        for k in range(6):
            path = f"OK/S{k:04}/{name}_{k:04}_OK_C1_20231026.jpg"
            good(root / "realiad_256" / name / path, k)
            entry = {"category": name, "anomaly_class": "OK", "image_path": path, "mask_path": None}
            (train if k < 4 else test).append(entry)
        for k in range(2):
            stem = f"NG/HS/S{k:04}/{name}_{k:04}_NG_HS_C1_20231026"
            bad(root / "realiad_256" / name / f"{stem}.jpg", 40 + k)
            save(root / "realiad_256" / name / f"{stem}.png", MASK)
            entry = {"category": name, "anomaly_class": "HS", "image_path": f"{stem}.jpg"}
            test.append({**entry, "mask_path": f"{stem}.png"})
        meta = {"prefix": f"{name}/", "normal_class": "OK", "pre_transform": None}
        file = root / "realiad_jsons" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"meta": meta, "train": train, "test": test}))


def make_oct(root: Path) -> None:
    for k in range(4):
        good(root / "train" / "NORMAL" / f"NORMAL-{k}.jpeg", k)
        bad(root / "train" / "CNV" / f"CNV-{k}.jpeg", k)
    for k in range(2):
        good(root / "test" / "NORMAL" / f"NORMAL-9{k}.jpeg", 20 + k)
        bad(root / "test" / "CNV" / f"CNV-9{k}.jpeg", 40 + k)
        bad(root / "test" / "DME" / f"DME-9{k}.jpeg", 50 + k)


MAKERS: dict[str, tuple[Callable[[Path], None], list[str], set[str | None]]] = {
    "mvtec": (make_folders, ["01", "02"], {None, "ko"}),
    "btad": (make_btad, ["01", "02"], {None, "ko"}),
    "visa": (make_visa, ["candle", "pcb1"], {None, "anomaly"}),
    "real-iad": (make_real_iad, ["audiojack", "usb"], {None, "HS"}),
    "oct2017": (make_oct, ["data"], {None, "CNV", "DME"}),
}


@pytest.mark.parametrize("layout", MAKERS)
def test_a_layout_is_found_by_looking_and_means_the_same_when_told(
    layout: str, tmp_path: Path
) -> None:
    make, names, defects = MAKERS[layout]
    make(tmp_path / "data")
    found = open_dataset(tmp_path / "data")
    assert (found.layout, [c.name for c in found.categories]) == (layout, names)
    assert open_dataset(tmp_path / "data", layout=layout) == found
    for category in found.categories:
        assert len(category.train) == 4 and category.has_both
        assert {picture.defect for picture in category.test} == defects
        assert not set(category.train) & {picture.path for picture in category.test}
        for picture in category.test:
            assert picture.path.is_file()
            if picture.defect is not None and layout != "oct2017":
                assert picture.mask is not None
                assert read_defect_mask(picture.mask, (96, 80)).sum() == 25 * 30
    assert found.categories[0].has_masks == (layout != "oct2017")
    (one,) = open_dataset(tmp_path / "data", [names[-1]]).categories
    assert one == found.categories[-1]


def test_mpdd_lies_like_mvtec(tmp_path: Path) -> None:
    make_folders(tmp_path / "data")
    told = open_dataset(tmp_path / "data", layout="mpdd")
    assert told.layout == "mpdd"
    assert told.categories == open_dataset(tmp_path / "data").categories


def test_real_iad_takes_the_largest_pictures_there_are(tmp_path: Path) -> None:
    make_real_iad(tmp_path)
    (tmp_path / "realiad_256").rename(tmp_path / "realiad_512")
    make_real_iad(tmp_path)
    (category, _) = open_dataset(tmp_path).categories
    assert {path.parts[-5] for path in category.train} == {"realiad_512"}


def test_real_iads_noisy_training_lists_teach_the_good_ones_only(tmp_path: Path) -> None:
    make_real_iad(tmp_path)
    file = tmp_path / "realiad_jsons" / "usb.json"
    document = json.loads(file.read_text())
    document["train"].append(document["test"][-1])
    file.write_text(json.dumps(document))
    (category,) = open_dataset(tmp_path, ["usb"]).categories
    assert len(category.train) == 4


# ---- data that is not as it should be


@pytest.mark.parametrize("told", LAYOUTS)
@pytest.mark.parametrize("layout", MAKERS)
def test_a_layout_that_was_told_and_is_another_is_one_clear_line(
    layout: str, told: str, tmp_path: Path
) -> None:
    MAKERS[layout][0](tmp_path / "data")
    if told == layout or (told, layout) == ("mpdd", "mvtec"):
        return
    line = rf"data is not in the layout {told}: it looks like {layout}; expected is "
    with pytest.raises(UsageError, match=line):
        open_dataset(tmp_path / "data", layout=told)


def test_a_csv_that_names_missing_files_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(Path("line.anoco"))
    make_visa(Path("visa"))
    Path("visa/candle/Data/Images/Normal/0001.JPG").unlink()
    line = fails(2, "eval", "visa", "--shots", "1")
    assert "visa/split_csv/1cls.csv names a file that is not there, visa/candle/Data/Images" in line
    assert "0001.JPG for one; unpack the whole data set" in line
    Path("visa/candle/Data/Masks/Anomaly/001.png").unlink()
    assert "names 2 files that are not there" in fails(2, "eval", "visa", "--shots", "1")
    ok("eval", "visa", "--shots", "1", "--categories", "pcb1", "--layout", "visa", "--json")
    told = json.loads(Path("eval-out/results.json").read_text())["settings"]
    assert told["layout"] == "visa"


def test_a_json_that_names_missing_files_or_is_another_is_refused(tmp_path: Path) -> None:
    make_real_iad(tmp_path)
    (masks,) = tmp_path.glob("realiad_256/usb/NG/HS/S0001/*.png")
    masks.unlink()
    with pytest.raises(
        UsageError, match=r"usb\.json names a file that is not there, .*png for one"
    ):
        open_dataset(tmp_path)
    file = tmp_path / "realiad_jsons" / "usb.json"
    for text in ("{", "[]", '{"meta": {}}', '{"meta": {"prefix": 3, "normal_class": "OK"}}'):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"usb\.json is not Real-IAD's: .*; it has meta"):
            open_dataset(tmp_path, ["usb"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("object,split", "category,split", "has no column object"),
        ("candle,train,normal", "candle,train,fine", "gives .* the split 'train' and label 'fine'"),
        ("candle,train,normal", "candle,val,normal", "splits are train and test"),
        (
            "candle,train,normal",
            "candle,test,normal",
            "1cls.csv, train of candle, holds no picture",
        ),
    ],
)
def test_a_csv_that_says_something_else_is_refused(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    make_visa(tmp_path)
    file = tmp_path / "split_csv" / "1cls.csv"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UsageError, match=complaint):
        open_dataset(tmp_path)


def test_a_csv_that_is_no_text_is_refused(tmp_path: Path) -> None:
    make_visa(tmp_path)
    (tmp_path / "split_csv" / "1cls.csv").write_bytes(b"object,split\xff\xfe\0")
    with pytest.raises(UsageError, match=r"1cls\.csv cannot be read"):
        open_dataset(tmp_path)


def test_unknown_layouts_and_folders_are_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown layout 'coco'; use mvtec, mpdd, btad, visa"):
        open_dataset(tmp_path, layout="coco")
    with pytest.raises(
        UsageError, match=r"is not a data set: .*for mpdd, btad, visa, .* pass `layout=NAME`"
    ):
        open_dataset(tmp_path)
    with pytest.raises(UsageError, match=r"there is no data set at .*; expected is realiad_jsons"):
        open_dataset(tmp_path / "missing", layout="real-iad")
