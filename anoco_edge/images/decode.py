"""Read one picture from a file, from bytes or from an array as HxWx3 uint8 RGB.

The same picture gives the same pixels, whichever way it comes in.
Pillow defines what the pixels are. The orientation in the EXIF data is applied, grey becomes RGB,
alpha is dropped, and 16-bit pictures lose their low byte. Their contrast is never stretched per
picture, because a part that gets darker must look darker. An incomplete picture is refused, even
where a decoder would fill in the missing part.
"""

from __future__ import annotations

import errno
import io
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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
from anoco_edge.images.jpeg_check import UncheckableError, check_jpeg
from anoco_edge.images.orientation import turned_upright
from anoco_edge.images.tiff_check import check_strips, check_tags, silence_libtiff
from anoco_edge.storage.regular_file import NotRegularFileError, open_regular

RGB = NDArray[np.uint8]

PICTURE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".gif"}
    | {".ppm", ".pgm", ".pbm", ".pnm"}
)
MIN_SIDE = 16
# This limit is checked before memory is allocated. Reading a picture of this size takes at most
# about 1.1 GB, of which 300 MB are the array. The native library has the same limit.
MAX_PIXELS = 100_000_000
MAX_BYTES = 1_000_000_000  # 100 million pixels of 16 bits with alpha are 800 MB
MAX_SIDE = 32_768

# Only these formats are read. Pillow knows many more, some of which start other programs (EPS runs
# Ghostscript).
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
# Pictures are converted in bands of this many pixels to save memory, because each step of a
# conversion in Pillow makes a copy.
_BAND_PIXELS = 4_000_000

# These are the exceptions that Pillow's readers raise on damaged files. They were collected by
# truncating and mutating real files.
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
    """Return the picture in a file as an upright HxWx3 uint8 RGB array.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "grey.png")
    ...     Image.new("L", (32, 24), 7).save(file)
    ...     read_picture(file)[0, 0].tolist()
    [7, 7, 7]
    """
    name = str(path)
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise PictureError(f"{name} does not exist", hint="check the path") from None
    except PermissionError:
        raise PictureError(
            f"{name} may not be read (permission denied)",
            hint=f"allow it with: chmod +r '{name}', and check the folders above it",
        ) from None
    except NotRegularFileError as exc:
        if exc.errno == errno.EISDIR:
            raise PictureError(
                f"{name} is a folder, not a picture", hint="name a picture in it"
            ) from None
        raise PictureError(f"{name} is not a regular file", hint="name a picture file") from None
    except (OSError, ValueError) as exc:
        raise PictureError(f"{name} cannot be opened: {exc}", hint="check the path") from None
    with file:
        return _decode(file, name)


def decode_picture(data: bytes, name: str) -> RGB:
    """Return the picture that encoded bytes hold; error messages call it `name`.

    >>> decode_picture(b"good morning", "a.png")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: a.png is not a picture...
    """
    return _decode(io.BytesIO(data), name)


def header_size(data: bytes, name: str) -> tuple[int, int]:
    """Return width and height as the header of a picture says, without decoding its pixels.

    >>> header_size(b"good morning", "a.png")
    Traceback (most recent call last):
    anoco_edge.errors.PictureError: a.png is not a picture...
    """
    with _damage_reported(None, name):
        image = _identify(io.BytesIO(data), name)
        if image is None:
            raise _no_picture(name, len(data))
        with image:
            return image.size


def as_rgb(image: Image.Image, name: str) -> RGB:
    """Return a Pillow picture as an upright HxWx3 uint8 RGB array.

    This conversion is the reference that all other readers are compared with.


    >>> as_rgb(Image.new("I;16", (20, 16), 0x12FF), "deep.tif")[0, 0].tolist()
    [18, 18, 18]
    """
    check_size(*image.size, name)
    with _damage_reported(image, name):
        image.load()
        return turned_upright(_to_array(image, name), _orientation(image))


def check_rgb(array: Any, name: str) -> RGB:
    """Return an array of a caller as C-contiguous; raise unless it is HxWx3 uint8.

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
    with _nothing_filled_in(), _damage_reported(None, name):
        size = file.seek(0, io.SEEK_END)
        if size > MAX_BYTES:
            raise PictureError(
                f"{name} is a file of {size / 1e6:.0f} MB",
                hint=f"at most {MAX_BYTES // 1_000_000} MB are read: cut or scale it first",
            )
        image = _identify(file, name)
        if image is None:
            raise _no_picture(name, size)
        check_size(*image.size, name)
        if image.format in ("JPEG", "MPO"):
            # The check and the decoder use the same bytes, because a camera may overwrite the file
            # with its next picture in between.
            file.seek(0)
            data = file.read()
            check_jpeg(data)
            image = _identify(io.BytesIO(data), name)
            if image is None:
                raise PictureError(f"{name} changed while it was read", hint="read it again")
        elif image.format == "TIFF":
            silence_libtiff()
            check_strips(image, file)
        with image:
            return as_rgb(image, name)


def _no_picture(name: str, size: int) -> PictureError:
    return PictureError(
        f"{name} is {'not a picture, whatever its name says' if size else 'empty'}",
        hint=f"give a picture file ({_KNOWN})",
    )


@contextmanager
def _damage_reported(image: Image.Image | None, name: str) -> Iterator[None]:
    """Turn the exceptions of decoders into a PictureError with a message of one line."""
    try:
        yield
    except MemoryError:
        size = f" ({image.width}x{image.height} pixels)" if image else ""
        raise PictureError(
            f"{name} needs more memory than there is{size}",
            hint="make it smaller, or close other programs",
        ) from None
    except UncheckableError as exc:
        raise PictureError(
            f"{name} {exc}, and whether it is whole cannot be checked",
            hint="save it as PNG, or as a JPEG in RGB",
        ) from None
    except _DAMAGED as exc:
        raise PictureError(
            f"{name} is damaged or incomplete ({_reason(exc)})",
            hint="copy it again from where it came, or take it again",
        ) from None


_filling_in_lock = threading.Lock()
_readers = 0
_was_filling_in = False


@contextmanager
def _nothing_filled_in() -> Iterator[None]:
    """Make Pillow refuse truncated pictures, even if the application has set it to accept them.

    The switch is a global of the process. It is restored when the last reader is done.
    """
    global _readers, _was_filling_in
    with _filling_in_lock:
        if not _readers:
            _was_filling_in = ImageFile.LOAD_TRUNCATED_IMAGES
        _readers += 1
        if _was_filling_in:
            ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        with _filling_in_lock:
            _readers -= 1
            if not _readers and _was_filling_in:
                ImageFile.LOAD_TRUNCATED_IMAGES = True


def _identify(file: IO[bytes], name: str) -> ImageFile.ImageFile | None:
    """Read the header as Image.open does, without its limit on pixels; None for unknown formats.

    Pillow warns above 89 and refuses above 179 million pixels. That limit is a module variable,
    which belongs to the application that imports this package. Calling the registered readers
    directly does not change it and is safe with threads. `check_size` applies the limit of this
    package before any pixel is decoded.
    """
    file.seek(0)
    prefix = file.read(32)
    for kind in _FORMATS:
        reader, accepts = Image.OPEN[kind]
        try:
            # A reader that was compiled out of Pillow returns a text instead of True.
            if accepts is not None and accepts(prefix) is not True:
                continue
            if kind == "TIFF":
                check_tags(file)
            elif kind == "WEBP":  # its reader allocates the pixels immediately
                check_size(*_webp_size(prefix), name)
            file.seek(0)
            return reader(file, "")
        except _NOT_THIS_FORMAT:
            continue
    return None


def check_size(width: int, height: int, name: str) -> None:
    """Raise a PictureError unless a picture of this size can be inspected.

    The native library has the same limits.


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


def _webp_size(prefix: bytes) -> tuple[int, int]:
    """Return width and height from the first 32 bytes of a WebP file of any of its three kinds."""
    kind = prefix[12:16]
    if kind == b"VP8X":
        canvas = int.from_bytes(prefix[24:30], "little")
        return (canvas & 0xFFFFFF) + 1, (canvas >> 24) + 1
    if kind == b"VP8L":
        both = int.from_bytes(prefix[21:25], "little")
        return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
    both = int.from_bytes(prefix[26:30], "little")
    return both & 0x3FFF, both >> 16 & 0x3FFF


def _to_array(image: Image.Image, name: str) -> RGB:
    """Convert a picture to an array of RGB, band by band to save memory.

    The result is the same as for the whole picture, because no conversion uses neighboring pixels.
    """
    rows = max(1, _BAND_PIXELS // image.width)
    if image.height <= rows:
        return np.array(_eight_bits(image, name), order="C")
    rgb = np.empty((image.height, image.width, 3), np.uint8)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        band = image.crop((0, top, image.width, bottom))
        rgb[top:bottom] = np.asarray(_eight_bits(band, name))
    return rgb


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    """Return a picture as 8-bit RGB; 16-bit grey loses its low byte.

    Pillow itself drops the low byte of 16-bit RGB.
    """
    if image.mode == "RGB":
        return image
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 0xFFFF:
            raise _unsupported(name, f"32-bit values from {low} to {high}")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise _unsupported(name, "floating-point values")
    if image.mode == "LAB":  # Pillow converts Lab only with color profiles
        raise _unsupported(name, "Lab colours")
    if image.mode == "P" and "transparency" in image.info:
        # Alpha is dropped anyway, and Pillow would warn about every such picture.
        image = image.copy()
        del image.info["transparency"]
    return image.convert("RGB")


def _unsupported(name: str, what: str) -> PictureError:
    return PictureError(
        f"{name} has {what}, and where black and white lie is not known",
        hint="save it as an 8-bit or 16-bit picture",
    )


def _orientation(image: Image.Image) -> int:
    try:
        if exif := image.info.get("exif"):
            check_tags(io.BytesIO(exif.removeprefix(b"Exif\0\0")))
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except _DAMAGED:
        return 1  # the pixels are good even if the EXIF block is damaged
    return value if isinstance(value, int) else 1


def _reason(exc: BaseException) -> str:
    if isinstance(exc, Image.DecompressionBombError):
        return "it claims to have more pixels than can be read"
    return str(exc).rstrip(".") or type(exc).__name__
