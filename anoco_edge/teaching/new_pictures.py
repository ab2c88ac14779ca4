"""Pictures of good parts that are to become references or to calibrate a product."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anoco_edge.bundle import Bundle, Product, Reference
from anoco_edge.bundle.schema import FileRecord
from anoco_edge.images.decode import PICTURE_SUFFIXES, decode_picture, read_picture
from anoco_edge.storage.hashes import sha256_bytes
from anoco_edge.storage.regular_file import read_regular
from anoco_edge.teaching.burst_detection import Thumbnail, thumbnail
from anoco_edge.text.plain_text import utf8_text

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class NewPicture:
    """A picture of a good part, as the bytes of a picture file.

    Its pixels are decoded each time they are needed, because hundreds of pictures of a line camera
    do not fit into memory.
    """

    name: str
    data: bytes = field(repr=False)
    suffix: str
    pixels: str
    """The hash of the decoded pixels. The same picture in another file has the same hash."""
    width: int
    height: int
    thumbnail: Thumbnail = field(repr=False, compare=False)

    @staticmethod
    def from_file(path: str | Path) -> NewPicture:
        """Read a picture file. Its bytes go into the bundle as they are."""
        path = Path(path)
        try:
            data = read_regular(path)
        except (OSError, ValueError):
            read_picture(path)  # raises an error that says in one line what is wrong
            raise
        # The pixels come from the bytes that are kept: a camera may be writing the next picture.
        rgb = decode_picture(data, str(path))
        return NewPicture._of(path.name, data, path.suffix.lower(), rgb)

    @staticmethod
    def from_bytes(name: str, data: bytes) -> NewPicture:
        """Take the bytes of a picture file. They go into the bundle as they are."""
        return NewPicture._of(name, data, Path(name).suffix.lower(), decode_picture(data, name))

    @staticmethod
    def from_reference(bundle: Bundle, product: Product, reference: Reference) -> NewPicture:
        """Read a reference of a product, to build another bank from it."""
        data = bundle.read(reference.file, bundle.product_folder(product.name))
        suffix = Path(reference.file.path).suffix
        return NewPicture._of(reference.name, data, suffix, decode_picture(data, reference.name))

    @staticmethod
    def from_array(name: str, rgb: Pixels) -> NewPicture:
        """Take a frame of a camera or a video. The bundle holds it as PNG."""
        buffer = io.BytesIO()
        Image.fromarray(rgb).save(buffer, "PNG")
        return NewPicture._of(name, buffer.getvalue(), ".png", rgb)

    @staticmethod
    def _of(name: str, data: bytes, suffix: str, rgb: Pixels) -> NewPicture:
        height, width = rgb.shape[:2]
        own = suffix if suffix in PICTURE_SUFFIXES else ""  # the content decides, not the name
        digest = sha256_bytes(rgb.tobytes())
        return NewPicture(utf8_text(name), data, own, digest, width, height, thumbnail(rgb))

    @property
    def rgb(self) -> Pixels:
        """The decoded picture."""
        return decode_picture(self.data, self.name)

    def file(self, folder: str) -> FileRecord:
        """The record of the picture's file, which lies in `folder` below the product's folder."""
        digest = sha256_bytes(self.data)
        path = f"{folder}/{digest[:16]}{self.suffix}"
        return FileRecord(path=path, sha256=digest, size=len(self.data))

    @property
    def reference(self) -> Reference:
        """The record of the picture as a reference."""
        return Reference(
            name=self.name,
            file=self.file("references"),
            pixels=self.pixels,
            width=self.width,
            height=self.height,
        )


def unused_name(name: str, taken: Collection[str]) -> str:
    """Number a name that is taken, because the pictures of two folders may have the same name.

    >>> unused_name("part.png", ["part.png", "part-2.png"])
    'part-3.png'
    """
    path, number, free = Path(name), 1, name
    while free in taken:
        number += 1
        free = f"{path.stem}-{number}{path.suffix}"
    return free


def separate_duplicates(
    pictures: Sequence[NewPicture], references: Sequence[Reference]
) -> tuple[list[NewPicture], list[str]]:
    """Separate new pictures from those that are references already or are given twice.

    Returns the new pictures, each with a name of its own, and a description of each of the others.
    """
    known = {r.pixels: r.name for r in references}
    fresh, duplicates = [], []
    for picture in pictures:
        if picture.pixels in known:
            duplicates.append(f"{picture.name} (same as {known[picture.pixels]})")
        else:
            own = unused_name(picture.name, known.values())
            known[picture.pixels] = own
            fresh.append(replace(picture, name=own))
    return fresh, duplicates
