"""A picture that was received incompletely is refused, and a complete one never is."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, TiffImagePlugin

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import MAX_PIXELS, decode_picture, read_picture
from anoco_edge.images.jpeg_check import MAX_SCANS, check_jpeg

EOI = b"\xff\xd9"
RNG = np.random.default_rng(3)
# The picture is smooth with some noise, like a part in front of a camera.
PART = Image.fromarray(
    (
        np.add.outer(np.arange(240), np.arange(320))[..., None] / 3
        + RNG.integers(0, 25, (240, 320, 3))
    )
    .clip(0, 255)
    .astype(np.uint8)
)


def encoded(format_: str, image: Image.Image = PART, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **options)  # type: ignore[arg-type]
    return stream.getvalue()


JPEGS = {
    "baseline": encoded("JPEG", quality=90),
    "poor": encoded("JPEG", quality=10),
    "best": encoded("JPEG", quality=100, subsampling=0),
    "4:2:2": encoded("JPEG", subsampling=1),
    "optimized": encoded("JPEG", optimize=True),
    "progressive": encoded("JPEG", progressive=True),
    "progressive 4:4:4": encoded("JPEG", progressive=True, subsampling=0, quality=95),
    "restarts": encoded("JPEG", restart_marker_blocks=4),
    "restarts of rows": encoded("JPEG", restart_marker_rows=1, progressive=True),
    "grey": encoded("JPEG", PART.convert("L")),
    "cmyk": encoded("JPEG", PART.convert("CMYK")),
    "rgb": encoded("JPEG", keep_rgb=True),
    "two pictures": encoded("MPO", save_all=True, append_images=[PART.rotate(180)]),
    "padded": encoded("JPEG") + bytes(4000),
}
OTHERS = {
    "png": encoded("PNG"),
    "png palette": encoded("PNG", PART.quantize(64)),
    "bmp": encoded("BMP"),
    "gif": encoded("GIF", PART.quantize(64)),
    "webp": encoded("WEBP"),
    "webp lossless": encoded("WEBP", lossless=True),
    "tiff": encoded("TIFF"),
    "tiff lzw": encoded("TIFF", compression="tiff_lzw"),
    "tiff deflate": encoded("TIFF", compression="tiff_adobe_deflate"),
    "tiff packbits": encoded("TIFF", compression="packbits"),
    "tiff jpeg": encoded("TIFF", compression="jpeg"),
    "ppm": encoded("PPM"),
}
EVERY = {**JPEGS, **OTHERS}


def accepted(data: bytes) -> bool:
    try:
        decode_picture(data, "part")
    except PictureError:
        return False
    return True


def only_first(kind: str) -> bytes:
    """Cut off what may follow a picture: padding, or a second picture."""
    data = JPEGS[kind]
    if kind == "two pictures":
        return data[: data.index(b"\xff\xd9\xff\xd8") + 2]
    return data.rstrip(b"\0")


@pytest.mark.parametrize("kind", EVERY)
def test_a_whole_picture_is_accepted(kind: str) -> None:
    with Image.open(io.BytesIO(EVERY[kind])) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode_picture(EVERY[kind], kind), expected)


@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_cut_and_ended_is_refused(kind: str) -> None:
    data = only_first(kind)
    for share in (10, 30, 50, 80, 90, 99):
        assert not accepted(data[: len(data) * share // 100] + EOI), share


@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_without_its_end_is_refused(kind: str) -> None:
    assert not accepted(only_first(kind)[:-2])


@pytest.mark.parametrize("kind", [kind for kind in JPEGS if kind != "poor"])
def test_a_jpeg_that_lacks_a_kilobyte_in_the_middle_is_refused(kind: str) -> None:
    """A JPEG that lacks bytes in the middle is refused, with two exceptions.

    In the second half of a progressive JPEG, which refines, any bits are valid. And where a
    kilobyte is a handful of blocks, the rest may happen to have the right length.
    """
    data = only_first(kind)
    last = len(data) // 2 if "progressive" in kind else len(data) - 1100
    starts = np.linspace(700, last, 12).astype(int)
    unnoticed = sum(accepted(data[:start] + data[start + 1024 :]) for start in starts)
    assert unnoticed <= (kind == "best")


@pytest.mark.parametrize("kind", ["progressive", "progressive 4:4:4", "restarts of rows"])
def test_a_progressive_jpeg_without_its_last_scans_is_refused(kind: str) -> None:
    """libjpeg does not warn about it, and the blurred picture would pass as good."""
    data = JPEGS[kind]
    starts = [n for n in range(len(data) - 1) if data[n : n + 2] == b"\xff\xda"]
    assert len(starts) > 4
    for start in starts[1:]:
        cut = data[: data.rindex(b"\xff\xc4", 0, start)] + EOI
        with pytest.raises(PictureError, match="scans are missing"):
            decode_picture(cut, "part")


def test_a_scan_that_never_comes_is_refused() -> None:
    """A sequential JPEG may have one scan for each colour, and one may be missing."""
    data = bytearray(JPEGS["grey"])
    frame = data.index(b"\xff\xc0")
    assert data[frame + 9] == 1
    two = data[frame + 10 : frame + 13]
    data[frame + 9] = 2
    data[frame + 13 : frame + 13] = bytes([two[0] + 1]) + two[1:]
    data[frame + 3] += 3
    with pytest.raises(ValueError, match="scans are missing"):
        check_jpeg(bytes(data))


def test_thousands_of_scans_keep_nobody_busy() -> None:
    data = JPEGS["progressive"]
    start = data.rindex(b"\xff\xda")
    many = data[:-2] + data[start:-2] * MAX_SCANS + EOI
    with pytest.raises(PictureError, match="scans"):
        decode_picture(many, "part")


@pytest.mark.parametrize("kind", OTHERS)
def test_a_cut_picture_of_another_format_is_refused_or_has_all_its_pixels(kind: str) -> None:
    data = OTHERS[kind]
    whole = decode_picture(data, kind)
    for share in (10, 30, 50, 80, 90, 95, 99):
        cut = data[: len(data) * share // 100]
        assert not accepted(cut) or np.array_equal(decode_picture(cut, kind), whole), share


@pytest.mark.parametrize("kind", OTHERS)
def test_a_picture_of_another_format_that_lacks_a_kilobyte_is_refused(kind: str) -> None:
    data = OTHERS[kind]
    for start in np.linspace(len(data) * 0.2, len(data) - 1100, 8).astype(int):
        assert not accepted(data[:start] + data[start + 1024 :]), start


def test_fax_compression_is_refused_because_its_damage_goes_unnoticed() -> None:
    data = encoded("TIFF", PART.convert("1"), compression="group4")
    with pytest.raises(PictureError, match=r"fax compression.*PNG"):
        decode_picture(data, "part")


def test_subsampling_that_cannot_be_checked_is_refused() -> None:
    data = encoded("JPEG", PART.convert("CMYK"), subsampling=2)
    with pytest.raises(PictureError, match=r"unusual subsampling.*cannot be checked.*PNG"):
        decode_picture(data, "part")


@pytest.mark.parametrize("part", range(12))
def test_damage_inside_a_deflate_strip_is_found_wherever_it_is(part: int) -> None:
    data = bytearray(OTHERS["tiff deflate"])
    start = 300 + part * (len(data) - 800) // 12
    data[start : start + 40] = b"\xff" * 40
    with pytest.raises(PictureError, match=r"part\.tif is damaged .* \(a strip is damaged"):
        decode_picture(bytes(data), "part.tif")


def test_a_damaged_tiff_gives_our_error_and_no_line_of_libtiff(
    capfd: pytest.CaptureFixture[str],
) -> None:
    data = bytearray(OTHERS["tiff lzw"])
    data[len(data) // 3 : len(data) // 3 + 40] = b"\xff" * 40
    with pytest.raises(PictureError, match=r"part\.tif is damaged or incomplete"):
        decode_picture(bytes(data), "part.tif")
    assert capfd.readouterr() == ("", "")


def test_a_cut_tiff_prints_no_warning_of_pillow(tmp_path: Path) -> None:
    """In a process of its own, because pytest replaces the filters of warnings."""
    for kind in ("tiff jpeg", "tiff lzw"):
        for share in (30, 90, 99):
            whole = OTHERS[kind]
            (tmp_path / f"{kind} {share}.tif").write_bytes(whole[: len(whole) * share // 100])
    command = [sys.executable, "-c", READ_ALL, *map(str, tmp_path.iterdir())]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("6 refused\n", "")


READ_ALL = """
import sys
from anoco_edge.errors import PictureError
from anoco_edge.images.decode import read_picture

refused = 0
for path in sys.argv[1:]:
    try:
        read_picture(path)
    except PictureError:
        refused += 1
print(refused, "refused")
"""


def test_a_damaged_jpeg_inside_a_tiff_is_refused() -> None:
    data = bytearray(OTHERS["tiff jpeg"])
    with Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, TiffImagePlugin.TiffImageFile)
        start, length = image.tag_v2[273][0], image.tag_v2[279][0]
    data[start + length // 2 : start + length // 2 + 40] = EOI * 20
    assert not accepted(bytes(data))


def test_an_application_that_wants_truncated_pictures_does_not_weaken_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for kind, data in EVERY.items():
        if kind not in ("two pictures", "padded"):
            assert not accepted(data[: len(data) // 2]), kind
            assert accepted(data), kind
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_threads_of_such_an_application_do_not_weaken_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    cut, wrong = OTHERS["png"][: len(OTHERS["png"]) // 2], []

    def read() -> None:
        wrong.extend(n for n in range(30) if accepted(cut))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_tags_that_share_their_bytes_take_no_memory() -> None:
    """The file has 10 MB and 300 tags of 10 MB each, all of which Pillow would copy."""
    size, number = 10_000_000, 300
    entries = b"".join(
        struct.pack("<HHLL", 40_000 + n, 1, size - 5000, 4000) for n in range(number)
    )
    data = b"II*\0\x08\0\0\0" + struct.pack("<H", number) + entries + bytes(4)
    with pytest.raises(PictureError, match="tags claim more"):
        decode_picture(data + bytes(size - len(data)), "bomb.tif")


def test_an_exif_block_whose_tags_share_their_bytes_is_left_unread() -> None:
    number, size = 5000, 60_000
    entries = b"".join(struct.pack("<HHLL", 40_000, 1, size - 8, 8) for n in range(number))
    block = b"II*\0\x08\0\0\0" + struct.pack("<H", number) + entries
    chunk = b"eXIf" + block
    png = OTHERS["png"]
    cut = png.index(b"IDAT") - 4
    added = struct.pack(">L", len(block)) + chunk + struct.pack(">L", zlib.crc32(chunk))
    assert accepted(png[:cut] + added + png[cut:])


@pytest.mark.parametrize(
    "header",
    [
        b"VP8X\x0a\0\0\0\0\0\0\0" + (16_000).to_bytes(3, "little") * 2,
        b"VP8L\x0a\0\0\0/" + ((15_999 << 14) | 15_999).to_bytes(4, "little"),
        b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 16_000, 16_000),
    ],
)
def test_the_size_of_a_webp_is_checked_before_its_reader_runs(header: bytes) -> None:
    data = b"RIFF" + struct.pack("<L", 4 + len(header)) + b"WEBP" + header
    with pytest.raises(PictureError, match=f"at most {MAX_PIXELS // 1_000_000} million"):
        decode_picture(data + bytes(40), "bomb.webp")


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jpg"
    with path.open("wb") as stream:
        stream.write(JPEGS["baseline"])
        stream.truncate(3_000_000_000)
    with pytest.raises(PictureError, match="3000 MB"):
        read_picture(path)


def test_pictures_in_bands_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        **{kind: EVERY[kind] for kind in ("progressive", "cmyk", "png palette", "webp")},
        "deep": encoded("PNG", Image.fromarray(np.asarray(PART.convert("L")).astype("u2") * 257)),
        "turned": encoded(
            "JPEG",
            exif=b"Exif\0\0" + struct.pack("<2sHLHHHLLL", b"II", 42, 8, 1, 0x112, 3, 1, 6, 0),
        ),
    }
    whole = {kind: decode_picture(data, kind) for kind, data in kinds.items()}
    monkeypatch.setattr("anoco_edge.images.decode._BAND_PIXELS", 320 * 7)
    for kind, data in kinds.items():
        assert np.array_equal(decode_picture(data, kind), whole[kind]), kind
    assert whole["turned"].shape == (320, 240, 3)
