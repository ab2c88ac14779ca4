"""The layouts of published data sets on disk, and how to recognize them.

    mvtec     [CATEGORY/]train/good/*  test/good/*  test/DEFECT/*  ground_truth/DEFECT/*
    mpdd      the same
    btad      the same with `ok` for `good`
    visa      split_csv/1cls.csv, which names the pictures and masks of every category
    real-iad  realiad_jsons/CATEGORY.json, which name pictures and masks in realiad_1024/CATEGORY/
    oct2017   train/NORMAL/*  test/NORMAL/*  test/DISEASE/*, and no masks

Masks in folders are named like their picture, or with `_mask` behind it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

from anoco_edge.errors import UsageError
from anoco_edge.images.decode import PICTURE_SUFFIXES
from anoco_edge.sources.files import natural_key
from anoco_edge.storage.regular_file import open_regular, read_regular
from anoco_edge_calibration.evaluation.dataset import Category, DataSet, TestPicture

CategoryReader = Callable[[], Category]

_VISA_CSV = Path("split_csv", "1cls.csv")
_VISA_COLUMNS = ("object", "split", "label", "image", "mask")
_REAL_JSONS = (Path("realiad_jsons", "realiad_jsons"), Path("realiad_jsons"))
_REAL_PICTURES = ("realiad_1024", "realiad_512", "realiad_256", "realiad_raw")  # the largest first


@dataclass(frozen=True)
class DatasetLayout:
    """One layout of data sets."""

    expected: str
    """What the folder must contain, in words, for errors."""
    find: Callable[[Path], Mapping[str, CategoryReader] | None]
    """Returns a reader for each category of a folder, or None if the layout is another one."""


def open_dataset(folder: Path, wanted: Sequence[str] = (), layout: str | None = None) -> DataSet:
    """Open a data set of one or several categories; `wanted` names those to take (default: all).

    Without a `layout` the files in the folder decide which one it is.
    """
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"use {', '.join(LAYOUTS)}")
    if not folder.is_dir():
        raise UsageError(f"there is no data set at {folder}", hint=_expected(layout))
    name = layout or _observe(folder)
    found = LAYOUTS[name].find(folder) if name is not None else None
    if name is None or not found:
        raise UsageError(_refusal(folder, layout), hint=_expected(layout))
    unknown = [category for category in wanted if category not in found]
    if unknown:
        raise UsageError(
            f"{folder} has no category {', '.join(unknown)}", hint=f"it has {', '.join(found)}"
        )
    names = list(dict.fromkeys(wanted)) or list(found)
    return DataSet(folder.resolve().name, tuple(found[one]() for one in names), name)


def _observe(folder: Path) -> str | None:
    return next((name for name, layout in LAYOUTS.items() if layout.find(folder)), None)


def _refusal(folder: Path, layout: str | None) -> str:
    if layout is None:
        return f"{folder} is not a data set: there is no train/good in it"
    other = _observe(folder)
    like = f": it looks like {other}" if other else ""
    return f"{folder} is not in the layout {layout}{like}"


def _expected(layout: str | None) -> str:
    if layout is not None:
        return f"expected is {LAYOUTS[layout].expected}"
    others = ", ".join(name for name in LAYOUTS if name != "mvtec")
    return f"expected is {LAYOUTS['mvtec'].expected}; for {others} pass `layout=NAME`"


# ---- folders of MVTec-AD's kind


def _find_folders(good: str, folder: Path) -> Mapping[str, CategoryReader] | None:
    def is_category(path: Path) -> bool:
        return (path / "train" / good).is_dir()

    if is_category(folder):
        return {folder.resolve().name: partial(_read_folders, folder.resolve().name, folder, good)}
    paths = sorted(path for path in folder.iterdir() if is_category(path))
    return {path.name: partial(_read_folders, path.name, path, good) for path in paths} or None


def _read_folders(name: str, folder: Path, good: str) -> Category:
    test: list[TestPicture] = []
    kinds = (folder / "test").iterdir() if (folder / "test").is_dir() else ()
    for kind in sorted(path for path in kinds if path.is_dir()):
        if kind.name == good:
            test += [TestPicture(path, None) for path in _pictures(kind)]
            continue
        masks = {path.stem: path for path in _pictures(folder / "ground_truth" / kind.name)}
        for path in _pictures(kind):
            mask = masks.get(f"{path.stem}_mask") or masks.get(path.stem)
            test.append(TestPicture(path, kind.name, mask))
    train = _pictures(folder / "train" / good)
    return _category(name, train, test, str(folder / "train" / good), str(folder / "test"))


# ---- VisA


def _find_visa(folder: Path) -> Mapping[str, CategoryReader] | None:
    file = folder / _VISA_CSV
    if not file.is_file():
        return None
    try:
        with open_regular(file) as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            reader = csv.DictReader(lines)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="fetch it again") from None
    lacking = [column for column in _VISA_COLUMNS if column not in (reader.fieldnames or ())]
    if lacking:
        hint = f"its first line is {','.join(_VISA_COLUMNS)}"
        raise UsageError(f"{file} has no column {', '.join(lacking)}", hint=hint)
    names = dict.fromkeys(row["object"] for row in rows)
    return {
        name: partial(_read_visa, name, file, [row for row in rows if row["object"] == name])
        for name in names
    }


def _read_visa(name: str, file: Path, rows: Sequence[Mapping[str, str]]) -> Category:
    root = file.parent.parent
    train, test = [], []
    for row in rows:
        path = root / row["image"]
        if row["label"] not in ("normal", "anomaly") or row["split"] not in ("train", "test"):
            said = f"split {row['split']!r} and label {row['label']!r}"
            raise UsageError(
                f"{file} gives {row['image']} the {said}",
                hint="splits are train and test, labels normal and anomaly",
            )
        normal = row["label"] == "normal"
        if row["split"] == "test":
            mask = root / row["mask"] if row["mask"] and not normal else None
            test.append(TestPicture(path, None if normal else "anomaly", mask))
        elif normal:
            train.append(path)
    _check_there(file, train, test)
    return _category(name, train, test, *(f"{file}, {s} of {name}," for s in ("train", "test")))


# ---- Real-IAD


def _find_real_iad(folder: Path) -> Mapping[str, CategoryReader] | None:
    pictures = next((folder / p for p in _REAL_PICTURES if (folder / p).is_dir()), None)
    jsons = next((folder / j for j in _REAL_JSONS if list((folder / j).glob("*.json"))), None)
    if pictures is None or jsons is None:
        return None
    files = sorted(jsons.glob("*.json"))
    return {file.stem: partial(_read_real_iad, file, pictures) for file in files}


def _read_real_iad(file: Path, pictures: Path) -> Category:
    try:
        document = json.loads(read_regular(file).decode("utf-8"))
        meta = document["meta"]
        root, normal = pictures / meta["prefix"], meta["normal_class"]
        train = [root / one["image_path"] for one in document["train"] if _is(one, normal)]
        test = [_real_iad_test(one, root, normal) for one in document["test"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"{file} is not Real-IAD's: {type(error).__name__} {error}",
            hint="it has meta (prefix, normal_class), train and test",
        ) from None
    _check_there(file, train, test)
    return _category(file.stem, train, test, f"train of {file}", f"test of {file}")


class _ListedPicture(TypedDict):
    """What the JSON of Real-IAD says about every picture."""

    image_path: str
    anomaly_class: str


class _RealIadPicture(_ListedPicture, total=False):
    """What it says about a picture that may have a mask."""

    mask_path: str | None


def _is(one: _RealIadPicture, normal: str) -> bool:
    return bool(one["anomaly_class"] == normal)


def _real_iad_test(one: _RealIadPicture, root: Path, normal: str) -> TestPicture:
    path = root / one["image_path"]
    if _is(one, normal):
        return TestPicture(path, None)
    name = one.get("mask_path")
    mask = root / name if name else None
    return TestPicture(path, one["anomaly_class"], mask)


# ---- OCT2017


def _find_oct2017(folder: Path) -> Mapping[str, CategoryReader] | None:
    if not all((folder / split / "NORMAL").is_dir() for split in ("train", "test")):
        return None
    name = folder.resolve().name
    return {name: partial(_read_folders, name, folder, "NORMAL")}


# ---- what they share


def _check_there(file: Path, train: Sequence[Path], test: Sequence[TestPicture]) -> None:
    """Raise UsageError if a file that the list names is missing, before minutes of work."""
    masks = [picture.mask for picture in test if picture.mask is not None]
    absent = [p for p in (*train, *(t.path for t in test), *masks) if not p.is_file()]
    if absent:
        files = "a file that is" if len(absent) == 1 else f"{len(absent)} files that are"
        raise UsageError(
            f"{file} names {files} not there, {absent[0]} for one",
            hint="unpack the whole data set beside it",
        )


def _category(
    name: str, train: Sequence[Path], test: Sequence[TestPicture], of_train: str, of_test: str
) -> Category:
    if not train:
        raise UsageError(f"{of_train} holds no picture", hint=_expected(None))
    if not test:
        raise UsageError(f"{of_test} holds no pictures", hint=_expected(None))
    return Category(name, tuple(train), tuple(test))


def _pictures(folder: Path) -> list[Path]:
    """Return the pictures of a folder in natural order, without hidden files."""
    if not folder.is_dir():
        return []
    files = (p for p in folder.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES)
    shown = (p for p in files if not p.name.startswith(".") and p.is_file())
    return sorted(shown, key=lambda path: natural_key(path.name))


_FOLDERS = (
    "[CATEGORY/]train/{0}/*.png, test/{0}/*.png, test/DEFECT/*.png and "
    "ground_truth/DEFECT/*.png (masks, white is defective)"
)
LAYOUTS: Mapping[str, DatasetLayout] = {
    "mvtec": DatasetLayout(_FOLDERS.format("good"), partial(_find_folders, "good")),
    "mpdd": DatasetLayout(_FOLDERS.format("good"), partial(_find_folders, "good")),
    "btad": DatasetLayout(_FOLDERS.format("ok"), partial(_find_folders, "ok")),
    "visa": DatasetLayout(f"{_VISA_CSV} with the columns {', '.join(_VISA_COLUMNS)}", _find_visa),
    "real-iad": DatasetLayout(
        "realiad_jsons/CATEGORY.json and realiad_1024/CATEGORY/ (or 512, 256, raw)",
        _find_real_iad,
    ),
    "oct2017": DatasetLayout("train/NORMAL/*, test/NORMAL/* and test/DISEASE/*", _find_oct2017),
}
