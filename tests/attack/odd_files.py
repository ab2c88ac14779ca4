"""Makes odd safetensors files and masks, and files with bytes flipped, cut off or added."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

Rng = np.random.Generator
Change = Callable[[bytes, Rng], bytes]
Header = dict[str, Any]


def pick(rng: Rng, values: Any) -> Any:
    """Choose one of them at random."""
    listed = list(values)
    return listed[rng.integers(len(listed))]


# ---- bytes


def flip(data: bytes, rng: Rng) -> bytes:
    """Change one to four bytes."""
    wrong = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        if wrong:
            wrong[rng.integers(len(wrong))] ^= int(rng.integers(1, 256))
    return bytes(wrong)


def cut(data: bytes, rng: Rng) -> bytes:
    """Cut off the end."""
    return data[: rng.integers(len(data) + 1)]


def grow(data: bytes, rng: Rng) -> bytes:
    """Add something after the end."""
    return data + rng.bytes(int(rng.integers(1, 40)))


def noise(data: bytes, rng: Rng) -> bytes:
    """Return random bytes."""
    return rng.bytes(int(rng.integers(0, 200)))


BYTES: dict[str, Change] = {
    "flipped": flip,
    "cut": cut,
    "grown": grow,
    "noise": noise,
    "empty": lambda data, rng: b"",
}


# ---- safetensors


def split(data: bytes) -> tuple[Header, bytes]:
    """Split a file into its header and its data."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), data[end:]


def joined(header: Header | bytes, numbers: bytes, *, pad: int = 8) -> bytes:
    """Join header and data; `pad` is what the header's length is rounded up to."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + numbers


def _edit(change: Callable[[Header, Header, Rng], Any]) -> Change:
    """Apply `change(header, tensor, rng)` to one tensor chosen at random."""

    def apply(data: bytes, rng: Rng) -> bytes:
        header, numbers = split(data)
        change(header, header[pick(rng, sorted(header))], rng)
        return joined(header, numbers)

    return apply


def _text(change: Callable[[bytes], bytes]) -> Change:
    def apply(data: bytes, rng: Rng) -> bytes:
        header, numbers = split(data)
        return joined(change(json.dumps(header).encode()), numbers)

    return apply


def _length(value: Callable[[int], int]) -> Change:
    return lambda data, rng: struct.pack("<Q", value(len(data)) % 2**64) + data[8:]


def _numbers(data: bytes, rng: Rng) -> bytes:
    """Replace one value of one tensor."""
    header, numbers = split(data)
    about = header[pick(rng, sorted(header))]
    begin, end = about["data_offsets"]
    size = {"F32": 4, "I32": 4, "F16": 2, "I16": 2}.get(about["dtype"], 1)
    odd = pick(rng, _ODD_NUMBERS[size])
    at = begin + size * int(rng.integers(max(1, (end - begin) // size)))
    return joined(header, numbers[:at] + odd + numbers[at + size :])


_ODD_NUMBERS = {
    1: (b"\xff",),
    2: tuple(struct.pack("<H", v) for v in (0x7C00, 0xFC00, 0x7E00, 0x8000, 0x7FFF, 0xFFFF, 1, 4)),
    4: (
        *(struct.pack("<f", v) for v in (np.nan, np.inf, -np.inf, -1.0, 3e38, 1e-45, -0.0, 1e11)),
        *(struct.pack("<i", v) for v in (-1, 2**31 - 1, 3)),
    ),
}
_SHAPES: tuple[Any, ...] = (
    *([], [0], [-1], [1.0], [True], ["1"], None, 1, {}, [2**62, 4], [2**63 - 1, 2]),
    *([0, 2**62, 2**62], [1] * 9, [1] * 40, [2**31, 2**31, 2**31], [[1]]),
)
_OFFSETS: tuple[Any, ...] = (
    *([], [0], [0, 0], [4, 0], [-4, 0], [0.0, 4.0], None, [0, 2**62], [0, 1, 2]),
    *([True, 4], ["0", "4"], [0, 2**63 - 1]),
)
_METADATA: tuple[Any, ...] = (
    {"a": "b"},
    {},
    {"a": 1},
    None,
    [],
    "x",
    {"a": None},
    {"format": "np"},
)
_DTYPES = (
    *("BF16", "F64", "F16", "F32", "I8", "U8", "BOOL", "I64", "U16", "F8_E4M3", "f32", "", None),
    *(1, [], "I32", "I16"),
)

TENSORS: dict[str, Change] = {
    "dtype": _edit(lambda h, t, rng: t.update(dtype=pick(rng, _DTYPES))),
    "shape": _edit(lambda h, t, rng: t.update(shape=pick(rng, _SHAPES))),
    "transposed": _edit(lambda h, t, rng: t.update(shape=t["shape"][::-1])),
    "one axis more": _edit(lambda h, t, rng: t["shape"].append(1)),
    "offsets": _edit(lambda h, t, rng: t.update(data_offsets=pick(rng, _OFFSETS))),
    "shifted": _edit(
        lambda h, t, rng: t.update(
            data_offsets=[v + pick(rng, (-4, 2, 4)) for v in t["data_offsets"]]
        )
    ),
    "more in a tensor": _edit(lambda h, t, rng: t.update(more=1)),
    "less in a tensor": _edit(lambda h, t, rng: t.pop(pick(rng, sorted(t)))),
    "metadata": _edit(lambda h, t, rng: h.update(__metadata__=pick(rng, _METADATA))),
    "an empty tensor": _edit(
        lambda h, t, rng: h.update(
            more={"dtype": "F32", "shape": pick(rng, ([0], [0, 2**62, 8])), "data_offsets": [0, 0]}
        )
    ),
    "a tensor missing": _edit(lambda h, t, rng: h.pop(pick(rng, sorted(h)))),
    "another name": _edit(
        lambda h, t, rng: h.update({pick(rng, ("x", "é", "")): h.pop(next(iter(h)))})
    ),
    "key twice": _text(lambda text: text[:-1] + b", " + text[1:]),
    "byte order mark": _text(lambda text: b"\xef\xbb\xbf" + text),
    "space before": _text(lambda text: b"  " + text),
    "NUL after": _text(lambda text: text + b"\0"),
    "something after": _text(lambda text: text + b"{}"),
    "not UTF-8": _text(lambda text: text.replace(b"F", b"\xff", 1)),
    "NaN in it": _text(lambda text: text.replace(b"[0,", b"[NaN,", 1)),
    "a list": _text(lambda text: b"[" + text + b"]"),
    "deep": _text(lambda text: b"[" * 100_000),
    "deep metadata": _text(
        lambda text: b'{"__metadata__": ' + b"[" * 65 + b"]" * 65 + b"," + text[1:]
    ),
    "2 MB of spaces": _text(lambda text: text + b" " * 2_000_000),
    "a million spaces": _text(lambda text: text + b" " * 1_000_000),
    "misaligned": lambda data, rng: joined(*_off_by_one(data), pad=1),
    "length 0": _length(lambda size: 0),
    "length beyond": _length(lambda size: size),
    "length huge": _length(lambda size: -1),
    "length one less": _length(lambda size: size - 9),
    "numbers": _numbers,
    "numbers again": _numbers,
    "nothing in it": lambda data, rng: joined({}, b""),
}


def _off_by_one(data: bytes) -> tuple[bytes, bytes]:
    header, numbers = split(data)
    text = json.dumps(header).encode()
    return text + b" " * (1 - len(text) % 2), numbers


# ---- masks


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at + 12 <= len(data):
        length = struct.unpack_from(">I", data, at)[0]
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def png_of(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """Write a PNG file with right checksums."""
    out = b"\x89PNG\r\n\x1a\n"
    for kind, content in chunks:
        crc = zlib.crc32(kind + content)
        out += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)
    return out


def _header(data: bytes, rng: Rng) -> bytes:
    (kind, header), *rest = _chunks(data)
    wrong = bytearray(header)
    wrong[rng.integers(len(wrong))] = int(pick(rng, (0, 1, 2, 3, 4, 6, 8, 15, 16, 128, 255)))
    return png_of([(kind, bytes(wrong)), *rest])


def _packed(data: bytes, rng: Rng) -> bytes:
    """Change a byte of the compressed pixels, and correct the checksum of the chunk."""
    return png_of([(k, flip(c, rng) if k == b"IDAT" else c) for k, c in _chunks(data)])


def _rows(data: bytes, rng: Rng) -> bytes:
    """Change a byte of the pixels or filters, and correct both checksums."""
    chunks = _chunks(data)
    rows = zlib.decompress(b"".join(c for k, c in chunks if k == b"IDAT"))
    rows = pick(rng, (flip, flip, flip, cut, grow))(rows, rng)
    return png_of([chunks[0], (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])


def _filters(data: bytes, rng: Rng) -> bytes:
    (kind, header), *_ = _chunks(data)
    width, height, bits, colours = struct.unpack_from(">IIBB", header)
    line = 1 + (width * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colours, 1) * bits + 7) // 8
    rows = bytearray(rng.bytes(line * height))
    rows[::line] = bytes(int(rng.integers(0, 6)) for _ in range(height))
    return png_of([(kind, header), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b"")])


_MORE = (
    *((b"tEXt", b"Title\0x"), (b"tEXt", b"exif\0x"), (b"zTXt", b"Raw profile type exif\0x")),
    *((b"iTXt", b"XML:com.adobe.xmp\0x"), (b"eXIf", b"II*\0"), (b"ABCD", b""), (b"abCd", b"")),
    *((b"PLTE", b"\0\0\0\xff\xff\xff"), (b"PLTE", b"\0"), (b"tRNS", b"\0\0"), (b"acTL", b"\0" * 8)),
    *(
        (b"fcTL", b"\0" * 26),
        (b"IHDR", b"\0" * 13),
        (b"IDAT", b""),
        (b"IDAT", b"x"),
        (b"IEND", b""),
    ),
    *((b"iCCP", b"x\0\0bad"), (b"gAMA", b""), (b"pHYs", b"\0"), (b"cHRM", b"\1"), (b"sRGB", b"")),
)


def _more(data: bytes, rng: Rng) -> bytes:
    chunks = _chunks(data)
    chunks.insert(int(rng.integers(len(chunks) + 1)), pick(rng, _MORE))
    return png_of(chunks)


def _order(data: bytes, rng: Rng) -> bytes:
    chunks = _chunks(data)
    half = len(chunks[1][1]) // 2
    chunks[1:2] = [(b"IDAT", chunks[1][1][:half]), (b"IDAT", chunks[1][1][half:])]
    if rng.random() < 0.5:
        chunks.insert(2, (b"tEXt", b"Title\0x"))
    elif rng.random() < 0.5:
        chunks = [chunks[k] for k in rng.permutation(len(chunks))]
    return png_of(chunks)


def _other_picture(data: bytes, rng: Rng) -> bytes:
    size = pick(rng, ((1, 1), (15, 40), (16, 16), (48, 40), (40, 48), (300, 20)))
    mode = pick(rng, ("1", "L", "LA", "P", "RGB", "RGBA"))
    values = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
    picture = Image.fromarray(values).convert(mode)
    kind = pick(rng, ("PNG", "PNG", "PNG", "GIF", "TIFF"))
    if kind == "GIF":
        picture = picture.convert("P")
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return buffer.getvalue()


def _palette(data: bytes, rng: Rng) -> bytes:
    """Write colours with a palette that may be too short."""
    values = rng.integers(0, 4, (40, 48), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    header = struct.pack(">IIBBBBB", 48, 40, 8, 3, 0, 0, 0)
    colours = rng.bytes(3 * int(rng.integers(0, 6)))
    return png_of(
        [(b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    )


MASKS: dict[str, Change] = {
    "header": _header,
    "packed": _packed,
    "rows": _rows,
    "filters": _filters,
    "a chunk more": _more,
    "chunks in pieces": _order,
    "another picture": _other_picture,
    "a palette": _palette,
    "after the end": lambda data, rng: data + b"more",
    "no end": lambda data, rng: data[:-12],
}
