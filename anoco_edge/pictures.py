"""Reading one picture: from a file, bytes or an array to HxWx3 uint8 RGB, the same way everywhere.

Pillow decides what the pixels are. The orientation in the EXIF data is applied, grey becomes RGB,
alpha is dropped, and 16-bit pictures lose their low byte: they are never stretched per picture,
because a part that gets darker must look darker.
"""

from __future__ import annotations

import io
import stat
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from anoco_edge.errors import PictureError

RGB = NDArray[np.uint8]

PICTURE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".gif"}
    | {".ppm", ".pgm", ".pbm", ".pnm"}
)
MIN_SIDE = 16
MAX_PIXELS = 100_000_000
MAX_SIDE = 32_768

# Only these: Pillow knows many more, some of which start other programs (EPS runs Ghostscript).
# Importing the plugins registers their readers in Image.OPEN.
_FORMATS = tuple(
    plugin.format
    for plugin in (
        JpegImagePlugin.JpegImageFile,
        PngImagePlugin.PngImageFile,
        BmpImagePlugin.BmpImageFile,
        TiffImagePlugin.TiffImageFile,
        WebPImagePlugin.WebPImageFile,
        GifImagePlugin.GifImageFile,
        PpmImagePlugin.PpmImageFile,
    )
)
_KNOWN = "JPEG, PNG, TIFF, BMP, WebP, GIF, PNM"

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# What Pillow's readers raise on damaged files (collected by cutting and mutating real ones).
_NOT_THIS_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    ArithmeticError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def read_picture(path: str | Path) -> RGB:
    """The picture in a file as an HxWx3 uint8 RGB array, upright.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "grey.png")
    ...     Image.new("L", (32, 24), 7).save(file)
    ...     read_picture(file)[0, 0].tolist()
    [7, 7, 7]
    """
    name = str(path)
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise PictureError(f"{name} is a folder, not a picture", hint="name a picture in it")
        # Opening a pipe would wait for ever for somebody who writes to it.
        if not stat.S_ISREG(mode):
            raise PictureError(f"{name} is not a regular file", hint="name a picture file")
        file = Path(path).open("rb")  # noqa: SIM115 - closed by the with below
    except FileNotFoundError:
        raise PictureError(f"{name} does not exist", hint="check the path") from None
    except PermissionError:
        raise PictureError(
            f"{name} may not be read (permission denied)",
            hint=f"allow it with: chmod +r '{name}', and check the folders above it",
        ) from None
    except (OSError, ValueError) as exc:
        raise PictureError(f"{name} cannot be opened: {exc}", hint="check the path") from None
    with file:
        return _decode(file, name)


def decode_picture(data: bytes, name: str) -> RGB:
    """The picture in encoded bytes; `name` is what an error calls it.

    >>> decode_picture(b"good morning", "a.png")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: a.png is not a picture...
    """
    return _decode(io.BytesIO(data), name)


def as_rgb(image: Image.Image, name: str) -> RGB:
    """A Pillow picture as an array: the one conversion that everything else is compared to.

    >>> as_rgb(Image.new("I;16", (20, 16), 0x12FF), "deep.tif")[0, 0].tolist()
    [18, 18, 18]
    """
    check_size(*image.size, name)
    try:
        image.load()
        upright = _upright(_eight_bits(image, name))
        if upright.mode == "P" and "transparency" in upright.info:
            # Alpha is dropped anyway; without this Pillow warns about every such picture.
            upright = upright.copy()
            del upright.info["transparency"]
        return np.array(upright.convert("RGB"), order="C")
    except MemoryError:
        raise PictureError(
            f"{name} needs more memory than there is ({image.width}x{image.height} pixels)",
            hint="make it smaller, or close other programs",
        ) from None
    except _DAMAGED as exc:
        raise PictureError(
            f"{name} is damaged or incomplete ({_reason(exc)})",
            hint="copy it again from where it came, or take it again",
        ) from None


def check_rgb(array: Any, name: str) -> RGB:
    """An array handed in by a caller, made C-contiguous; refused unless HxWx3 uint8.

    >>> check_rgb(np.zeros((48, 64)), "frame")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: frame is 48x64 grey float64; expected is HxWx3 uint8 RGB...
    """
    expected = "expected is HxWx3 uint8 RGB with values 0 to 255"
    if not isinstance(array, np.ndarray):
        kind = type(array).__name__
        raise PictureError(f"{name} is a {kind}, not a NumPy array", hint=expected)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        shape = "x".join(map(str, array.shape)) or "a single number"
        grey = " grey" if array.ndim == 2 else ""
        raise PictureError(f"{name} is {shape}{grey} {array.dtype}", hint=expected)
    check_size(array.shape[1], array.shape[0], name)
    return np.ascontiguousarray(array)


def _decode(file: IO[bytes], name: str) -> RGB:
    try:
        image = _identify(file)
    except MemoryError:
        raise PictureError(f"{name} needs more memory than there is") from None
    except _DAMAGED as exc:
        raise PictureError(
            f"{name} is damaged or incomplete ({_reason(exc)})",
            hint="copy it again from where it came, or take it again",
        ) from None
    if image is None:
        empty = not file.seek(0, io.SEEK_END)
        raise PictureError(
            f"{name} is {'empty' if empty else 'not a picture, whatever its name says'}",
            hint=f"give a picture file ({_KNOWN})",
        )
    with image:
        return as_rgb(image, name)


def _identify(file: IO[bytes]) -> ImageFile.ImageFile | None:
    """Read the header: Image.open without its limit on pixels, which is a global of the process.

    Pillow warns above 89 and refuses above 179 million pixels, by a module variable that belongs to
    the application we are embedded in. Calling the registered readers directly leaves it alone and
    is safe with threads; our own limit is checked in as_rgb, before any pixel is decoded.
    """
    prefix = file.read(16)
    for name in _FORMATS:
        reader, accepts = Image.OPEN[name]
        try:
            # A reader that was compiled out of Pillow answers with a text instead of True.
            if accepts is not None and accepts(prefix) is not True:
                continue
            file.seek(0)
            return reader(file, "")
        except _NOT_THIS_FORMAT:
            continue
    return None


def check_size(width: int, height: int, name: str) -> None:
    """Raise unless a picture of this size is inspected, here and by the native library.

    >>> check_size(8, 640, "a.png")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: a.png is 8x640 pixels, too small to inspect; ...
    """
    if min(width, height) < MIN_SIDE:
        raise PictureError(
            f"{name} is {width}x{height} pixels, too small to inspect",
            hint=f"a picture needs at least {MIN_SIDE} pixels on each side",
        )
    if max(width, height) > MAX_SIDE:
        raise PictureError(
            f"{name} is {width}x{height} pixels",
            hint=f"at most {MAX_SIDE} on a side are read: cut or scale it first",
        )
    if width * height > MAX_PIXELS:
        raise PictureError(
            f"{name} is {width}x{height}, {width * height / 1e6:.0f} million pixels",
            hint=f"at most {MAX_PIXELS // 1_000_000} million are read: cut or scale it first",
        )


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    """Deep greys without their low byte. (Deep RGB is cut to its high bytes by Pillow itself.)"""
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 0xFFFF:
            raise _unsupported(name, f"32-bit values from {low} to {high}")
        shifted = Image.fromarray((values >> 8).astype(np.uint8))
        # getexif() of the new picture reads this, so the orientation is not lost on the way.
        shifted.getexif()[_ORIENTATION_TAG] = _orientation(image)
        return shifted
    if image.mode == "F":
        raise _unsupported(name, "floating-point values")
    if image.mode == "LAB":  # Pillow converts it through colour profiles only
        raise _unsupported(name, "Lab colours")
    return image


def _unsupported(name: str, what: str) -> PictureError:
    return PictureError(
        f"{name} has {what}, and where black and white lie is not known",
        hint="save it as an 8-bit or 16-bit picture",
    )


def _upright(image: Image.Image) -> Image.Image:
    turn = _UPRIGHT.get(_orientation(image))
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except _DAMAGED:
        return 1  # a damaged EXIF block says nothing; the pixels are still good
    return value if isinstance(value, int) else 1


def _reason(exc: BaseException) -> str:
    if isinstance(exc, Image.DecompressionBombError):
        return "it claims to have more pixels than can be read"
    return str(exc).rstrip(".") or type(exc).__name__
