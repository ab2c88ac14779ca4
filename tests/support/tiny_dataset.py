"""Makes a data set of a few small pictures, for tests of `eval`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from command_line import defective_picture
from PIL import Image
from tiny_bundle import write_good_pictures

MASK = np.zeros((80, 96), np.uint8)
MASK[30:55, 30:60] = 255  # where `defective_picture` is red


def save_picture(path: Path, pixels: np.ndarray) -> Path:
    """Write a picture, after making the folder that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def make_category(folder: Path, seed: int) -> None:
    """Write six good parts to learn from, and three good and three defective ones to test."""
    write_good_pictures(folder / "train" / "good", 6, seed=seed)
    write_good_pictures(folder / "test" / "good", 3, seed=seed + 20)
    for k in range(3):
        save_picture(folder / "test" / "red" / f"{k}.png", defective_picture(seed + 40 + k))
        save_picture(folder / "masks" / "red" / f"{k}_mask.png", MASK)
