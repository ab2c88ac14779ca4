"""Pictures of every kind decode as a plain Pillow expression says; bad ones give one clear line."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import MAX_PIXELS, as_rgb, check_rgb, decode_picture, read_picture

W, H = 37, 29
RNG = np.random.default_rng(7)
COLOUR = Image.fromarray(RNG.integers(0, 256, (H, W, 3), dtype=np.uint8))
DEEP = RNG.integers(0, 65536, (H, W), dtype=np.uint16)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, depth: int, colour_type: int, rows: bytes) -> bytes:
    """Write a PNG by hand, since Pillow writes neither 16-bit colour nor a wrong header."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def deep_png(values: np.ndarray, colour_type: int) -> bytes:
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(values.shape[1], values.shape[0], 16, colour_type, rows)


ALPHA = COLOUR.copy()
ALPHA.putalpha(Image.fromarray(RNG.integers(0, 256, (H, W), dtype=np.uint8)))
PALETTE = COLOUR.quantize(17)
KINDS = {
    "rgb png": encoded(COLOUR, "PNG"),
    "rgb jpeg": encoded(COLOUR, "JPEG"),
    "progressive jpeg": encoded(COLOUR, "JPEG", progressive=True),
    "rgb bmp": encoded(COLOUR, "BMP"),
    "rgb tiff": encoded(COLOUR, "TIFF"),
    "lzw tiff": encoded(COLOUR, "TIFF", compression="tiff_lzw"),
    "webp": encoded(COLOUR, "WEBP"),
    "ppm": encoded(COLOUR, "PPM"),
    "grey png": encoded(COLOUR.convert("L"), "PNG"),
    "grey jpeg": encoded(COLOUR.convert("L"), "JPEG"),
    "bilevel png": encoded(COLOUR.convert("1"), "PNG"),
    "grey alpha png": encoded(ALPHA.convert("LA"), "PNG"),
    "rgba png": encoded(ALPHA, "PNG"),
    "rgba webp": encoded(ALPHA, "WEBP"),
    "palette png": encoded(PALETTE, "PNG"),
    "palette, one clear colour": encoded(PALETTE, "PNG", transparency=3),
    "palette, clear by bytes": encoded(PALETTE, "PNG", transparency=bytes(range(17))),
    "cmyk jpeg": encoded(COLOUR.convert("CMYK"), "JPEG"),
    "cmyk tiff": encoded(COLOUR.convert("CMYK"), "TIFF"),
    "ycbcr tiff": encoded(COLOUR.convert("YCbCr"), "TIFF"),
    "gif": encoded(PALETTE, "GIF"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_equals_plain_pillow(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore Pillow's own warning about the palette
        expected = np.asarray(Image.open(io.BytesIO(KINDS[kind])).convert("RGB"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # our function gives no warning
        got = decode_picture(KINDS[kind], kind)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.uint8 and got.flags.c_contiguous and got.flags.writeable


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(COLOUR, kind, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(decode_picture(data, kind), expected)
    assert expected.shape[:2] == ((W, H) if orientation > 4 else (H, W))


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_damaged_exif_block_does_not_cost_the_picture() -> None:
    data = encoded(COLOUR, "PNG", exif=b"Exif\0\0II*\0garbage that is no directory")
    np.testing.assert_array_equal(decode_picture(data, "a.png"), np.asarray(COLOUR))


@pytest.mark.parametrize(
    "data",
    [
        encoded(Image.fromarray(DEEP), "PNG"),
        encoded(Image.fromarray(DEEP), "TIFF"),
        encoded(Image.frombytes("I;16B", (W, H), DEEP.astype(">u2").tobytes()), "TIFF"),
        encoded(Image.fromarray(DEEP.astype(np.int32)), "TIFF"),
        encoded(Image.fromarray(DEEP), "PPM"),
    ],
    ids=["png", "tiff", "big-endian tiff", "32-bit tiff", "pgm"],
)
def test_deep_grey_loses_its_low_byte(data: bytes) -> None:
    expected = np.repeat((DEEP >> 8).astype(np.uint8)[..., None], 3, axis=2)
    np.testing.assert_array_equal(decode_picture(data, "deep"), expected)


def test_deep_grey_is_never_stretched() -> None:
    """A dark 12-bit picture stays dark, because stretching would hide that the light failed."""
    dark = np.full((H, W), 0x0FFF, dtype=np.uint16)
    assert decode_picture(encoded(Image.fromarray(dark), "PNG"), "dark").max() == 0x0F


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_deep_grey_is_turned_upright_too(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    got = decode_picture(encoded(Image.fromarray(DEEP), kind, exif=exif), "deep")
    np.testing.assert_array_equal(got[..., 0], np.rot90(DEEP >> 8, -1))


@pytest.mark.parametrize(("channels", "colour_type"), [(3, 2), (4, 6)])
def test_deep_colour_takes_the_high_byte(channels: int, colour_type: int) -> None:
    values = RNG.integers(0, 65536, (H, W, channels), dtype=np.uint16)
    got = decode_picture(deep_png(values, colour_type), "deep.png")
    np.testing.assert_array_equal(got, (values >> 8)[..., :3])


def test_the_first_frame_of_many() -> None:
    frames = [Image.new("RGB", (W, H), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "TIFF", "WEBP", "PNG"):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
        assert decode_picture(data, kind)[0, 0].tolist() == [255, 0, 0], kind


def test_a_very_wide_picture_is_fine(tmp_path: Path) -> None:
    Image.new("RGB", (20_000, 500), (1, 2, 3)).save(tmp_path / "wide.png", compress_level=1)
    wide = read_picture(tmp_path / "wide.png")
    assert wide.shape == (500, 20_000, 3) and wide[499, 19_999].tolist() == [1, 2, 3]


def refused(data: bytes, name: str = "part7.png") -> str:
    with pytest.raises(PictureError) as caught:
        decode_picture(data, name)
    text = str(caught.value)
    assert (
        text.startswith(name) and "\n" not in text and caught.value.hint and text.count(name) == 1
    )
    return text


@pytest.mark.parametrize("data", [b"", b"P", b"hello, I am a text", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_what_is_no_picture(data: bytes) -> None:
    assert ("is empty" if not data else "not a picture") in refused(data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.97])
def test_a_truncated_picture_is_never_accepted(kind: str, share: float) -> None:
    data = KINDS[kind]
    # the last 12 bytes are only a PNG's end mark
    refused(data[: min(int(len(data) * share), len(data) - 24)])


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_random_damage_gives_a_picture_or_a_picture_error() -> None:
    chance = np.random.default_rng(3)
    outcomes = {"picture": 0, "refused": 0}
    for kind in ("rgb png", "rgb jpeg", "rgb bmp", "rgb tiff", "webp", "gif", "ppm"):
        for _ in range(60):
            data = bytearray(KINDS[kind])
            for place in chance.integers(0, min(len(data), 300), 5):
                data[place] = chance.integers(0, 256)
            try:
                decode_picture(bytes(data), kind)
                outcomes["picture"] += 1
            except PictureError:
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize("size", [(1, 1), (15, 200), (200, 15)])
def test_too_small(size: tuple[int, int]) -> None:
    text = refused(encoded(Image.new("RGB", size), "PNG"))
    assert f"{size[0]}x{size[1]}" in text and "at least 16" in text


def test_16_pixels_are_enough() -> None:
    assert decode_picture(encoded(Image.new("L", (16, 16)), "PNG"), "a").shape == (16, 16, 3)


def test_too_many_pixels_are_refused_from_the_header() -> None:
    """Nothing follows the header, so a decoder that had started would report 'truncated'."""
    text = refused(png(10_001, 10_000, 8, 2, b""))
    assert "10001x10000" in text and "100 million" in text
    assert MAX_PIXELS < 10_001 * 10_000
    refused(png(200_000, 200_000, 8, 2, b""))


@pytest.mark.parametrize("limit", [100, None])
def test_the_limit_is_ours_and_pillows_is_left_alone(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application's own Pillow limit does not apply to us, and we do not change it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_picture(KINDS["rgb png"], "a").shape == (H, W, 3)
    assert limit == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.fromarray(np.full((H, W), 0.5, np.float32)), "floating-point"),
        (Image.fromarray(np.full((H, W), 70_000, np.int32)), "32-bit values"),
        (Image.fromarray(np.full((H, W), -1, np.int32)), "32-bit values"),
        (Image.new("LAB", (W, H)), "Lab"),
    ],
)
def test_values_without_a_scale(image: Image.Image, words: str) -> None:
    text = refused(encoded(image, "TIFF"), "depth.tif")
    assert words in text and "8-bit or 16-bit" in text


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    good = tmp_path / "good.png"
    good.write_bytes(KINDS["rgb png"])
    bad: list[tuple[str | Path, str]] = [
        (tmp_path / "gone.png", "does not exist"),
        (good / "x.png", "cannot be opened"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe.png", "not a regular file"),
        ("a\0b.png", "cannot be opened"),
    ]
    for path, words in bad:
        with pytest.raises(PictureError, match=words) as caught:
            read_picture(path)
        assert str(caught.value).startswith(str(path))

    # a plain chmod would not do: root, as in CI, may read everything
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(PictureError, match="permission denied"):
        read_picture(good)


def test_the_content_decides_not_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "really-a-jpeg.png").write_bytes(KINDS["rgb jpeg"])
    assert read_picture(str(tmp_path / "really-a-jpeg.png")).shape == (H, W, 3)


def test_many_threads_read_at_once() -> None:
    expected = decode_picture(KINDS["rgb jpeg"], "a")
    wrong: list[int] = []

    def work(number: int) -> None:
        got = [decode_picture(KINDS["rgb jpeg"], "a") for _ in range(20)]
        wrong.extend(number for rgb in got if not np.array_equal(rgb, expected))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_as_rgb_leaves_the_callers_picture_alone() -> None:
    palette = PALETTE.copy()
    palette.info["transparency"] = bytes(17)
    as_rgb(palette, "a")
    assert palette.info["transparency"] == bytes(17) and palette.mode == "P"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((48, 64)), "48x64 grey float64"),
        (np.zeros((48, 64, 4), np.uint8), "48x64x4 uint8"),
        (np.zeros((48, 64, 3), np.float32), "48x64x3 float32"),
        (np.zeros((1, 48, 64, 3), np.uint8), "1x48x64x3 uint8"),
        (np.zeros((), np.uint8), "single number"),
        (np.zeros((8, 64, 3), np.uint8), "64x8 pixels"),
        ([[1]], "a list"),
        (None, "a NoneType"),
    ],
)
def test_check_rgb_says_what_it_got(array: object, words: str) -> None:
    with pytest.raises(PictureError, match=words) as caught:
        check_rgb(array, "frame")
    assert "64x8" in words or "HxWx3 uint8 RGB" in caught.value.hint


def test_check_rgb_makes_contiguous_without_needless_copies() -> None:
    good = np.zeros((20, 30, 3), np.uint8)
    assert check_rgb(good, "frame") is good
    mirrored = check_rgb(np.asarray(COLOUR)[:, ::-1], "frame")
    assert mirrored.flags.c_contiguous
    np.testing.assert_array_equal(mirrored, np.asarray(ImageOps.mirror(COLOUR)))
