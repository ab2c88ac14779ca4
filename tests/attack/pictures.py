"""Mutated pictures of every format are read or refused in one line, without using much memory."""

from __future__ import annotations

import io
import resource
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from anoco_edge.errors import PictureError
from anoco_edge.images.decode import decode_picture
from tests.attack.campaign import Case, Plan

MOST_SECONDS = 20.0
MOST_MEMORY = 1_000_000  # kilobytes above what the process has at the start

Mutation = Callable[[bytes, np.random.Generator], bytes]


def cases(plan: Plan) -> Iterator[Case]:
    """Try each mutation of each picture a few times."""
    rng, pictures = plan.rng(), encoded_pictures(plan.rng())
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind, data in pictures.items():
        for name, mutate in MUTATIONS.items():
            for number in range(plan.choose(full=40, short=3)):
                broken = _tried(mutate(data, rng), kind.startswith("JPEG") and name in LOSSES)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
                if peak > MOST_MEMORY:
                    broken, start = f"it took {peak / 1e6:.1f} GB", start + peak
                yield Case(f"{kind}, {name} {number}", broken)


def encoded_pictures(rng: np.random.Generator) -> dict[str, bytes]:
    """Encode one part with every encoder available here."""
    ramp = np.add.outer(np.arange(192), np.arange(256))[..., None] / 2
    pixels = (ramp + rng.integers(0, 20, (192, 256, 3))).clip(0, 255).astype(np.uint8)
    part = Image.fromarray(pixels)
    ways: dict[str, tuple[str, Image.Image, dict[str, object]]] = {
        "JPEG": ("JPEG", part, {"quality": 85}),
        "JPEG grey": ("JPEG", part.convert("L"), {}),
        "JPEG restarts": ("JPEG", part, {"restart_marker_blocks": 4}),
        "progressive JPEG": ("JPEG", part, {"progressive": True}),
        "PNG": ("PNG", part, {}),
        "PNG palette": ("PNG", part.quantize(32), {}),
        "BMP": ("BMP", part, {}),
        "GIF": ("GIF", part.quantize(32), {}),
        "WebP": ("WEBP", part, {}),
        "WebP lossless": ("WEBP", part, {"lossless": True}),
        "TIFF": ("TIFF", part, {}),
        "TIFF LZW": ("TIFF", part, {"compression": "tiff_lzw"}),
        "TIFF JPEG": ("TIFF", part, {"compression": "jpeg"}),
        "PPM": ("PPM", part, {}),
    }
    found = {}
    for kind, (format_, image, options) in ways.items():
        held = io.BytesIO()
        image.save(held, format_, **options)  # type: ignore[arg-type]
        found[kind] = held.getvalue()
    return found


def _tried(data: bytes, must_be_refused: bool) -> str:
    began = time.monotonic()
    try:
        decode_picture(data, "part")
    except PictureError:
        refused = True
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    else:
        refused = False
    if time.monotonic() - began > MOST_SECONDS:
        return f"it took {time.monotonic() - began:.0f} s"
    return "a JPEG that is not whole was accepted" if must_be_refused and not refused else ""


def _place(data: bytes, rng: np.random.Generator) -> int:
    """Return a random place behind the header."""
    return int(rng.integers(len(data) // 5, len(data) * 9 // 10))


def _removed(data: bytes, rng: np.random.Generator) -> bytes:
    place = _place(data, rng)
    return data[:place] + data[place + 1024 :]


def _flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(0, len(data), 4):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _inserted(data: bytes, rng: np.random.Generator) -> bytes:
    place = _place(data, rng)
    return data[:place] + rng.bytes(int(rng.integers(1, 2000))) + data[place:]


def _swapped(data: bytes, rng: np.random.Generator) -> bytes:
    one, other = sorted(_place(data, rng) for _ in range(2))
    size = min(300, other - one, len(data) - other)
    first, second = data[one : one + size], data[other : other + size]
    return data[:one] + second + data[one + size : other] + first + data[other + size :]


def _header(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(0, min(200, len(data)), 3):
        changed[place] = int(rng.integers(256))
    return bytes(changed)


def _huge(data: bytes, rng: np.random.Generator) -> bytes:
    """Make each header field that holds the width or the height very large."""
    order = str(rng.choice(["<", ">"]))
    for side in (256, 192):
        for code in ("H", "I"):
            found, large = struct.pack(order + code, side), struct.pack(order + code, 65_500)
            data = data[:400].replace(found, large) + data[400:]
    return data


LOSSES = ("cut", "cut and ended", "a kilobyte removed")
MUTATIONS: dict[str, Mutation] = {
    "cut": lambda data, rng: data[: _place(data, rng)],
    "cut and ended": lambda data, rng: data[: _place(data, rng)] + b"\xff\xd9",
    "a kilobyte removed": _removed,
    "bits flipped": _flipped,
    "bytes inserted": _inserted,
    "parts swapped": _swapped,
    "header changed": _header,
    "huge": _huge,
}
