"""Mutated streams and videos never give an incompletely received frame as good.

A frame that differs from every clean one by more than rounding is broken, and so is a reader that
outlasts its time limit or raises what is not an AnocoError. Bits flipped within coded pictures
(`flips`) may give other pictures that nothing tells from real ones, since video has no checksums;
for them, only crashes and hangs count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
from command_line import jpeg
from stream_servers import (
    RGB,
    encode_video,
    http_bytes,
    missing_rtsp_server,
    mjpeg_part,
    rtsp_proxy,
    rtsp_server,
)

from anoco_edge.errors import AnocoError
from anoco_edge.images.frame import Frame
from anoco_edge.sources import open_source
from tests.attack.campaign import Case, Plan

TIMEOUT = 2.0
PATIENCE = 30.0  # seconds over the time limit, for a busy machine
Mutation = Callable[[bytes, np.random.Generator], bytes]


def cases(plan: Plan) -> Iterator[Case]:
    """Try MJPEG over HTTP, video files, and RTSP where it can be served."""
    rng = plan.rng()
    yield from _mjpeg(plan, rng)
    yield from _videos(plan, rng)
    if not plan.short and not missing_rtsp_server():
        yield from _rtsp(plan, rng)


def pictures(count: int) -> list[RGB]:
    """Draw a moving texture."""
    coarse = np.random.default_rng(3).integers(0, 256, (12, 40, 3), np.uint8)
    texture = np.kron(coarse, np.ones((8, 8, 1), np.uint8))
    noise = np.random.default_rng(4).integers(0, 40, (count, 96, 128, 3), np.uint8)
    moved = [texture[:, 2 * k : 2 * k + 128] for k in range(count)]
    return [cv2.add(np.ascontiguousarray(rgb), noise[k]) for k, rgb in enumerate(moved)]


def verdict(inputs: Sequence[str], clean: Sequence[RGB], *, pixels: bool = True) -> str:
    """Return what is broken in reading `inputs`, or an empty string."""
    began = time.monotonic()
    frames: list[Frame] = []
    try:
        with open_source(inputs, timeout=TIMEOUT) as source:
            frames.extend(source)
    except AnocoError:
        pass  # reported, as it must be
    except Exception as exc:  # noqa: BLE001 - this is what the campaign looks for
        return f"{type(exc).__name__}: {exc}"
    if time.monotonic() - began > 3 * TIMEOUT + PATIENCE:
        return f"it took {time.monotonic() - began:.0f} s"
    if pixels:
        for frame in frames:
            if frame.rgb is not None and not any(_near(frame.rgb, rgb) for rgb in clean):
                return f"{frame.source} is given as good and is none of the clean frames"
    return ""


def _near(one: RGB, other: RGB) -> bool:
    return one.shape == other.shape and bool(cv2.absdiff(one, other).mean() < 2)


# --- mutations of bytes ---------------------------------------------------------------------------


def _place(data: bytes, rng: np.random.Generator, most: int = 4096) -> tuple[int, int]:
    at = int(rng.integers(0, len(data)))
    return at, at + int(rng.integers(1, most))


def cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: int(rng.integers(0, len(data)))]


def drop(data: bytes, rng: np.random.Generator) -> bytes:
    at, end = _place(data, rng)
    return data[:at] + data[end:]


def duplicate(data: bytes, rng: np.random.Generator) -> bytes:
    at, end = _place(data, rng)
    return data[:end] + data[at:]


def zeros(data: bytes, rng: np.random.Generator) -> bytes:
    at, end = _place(data, rng)
    end = max(end, at + 64)
    return data[:at] + bytes(len(data[at:end])) + data[end:]


def flips(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for at in rng.integers(0, len(data), int(rng.integers(1, 20))):
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


# --- MJPEG ----------------------------------------------------------------------------------------


def _mjpeg(plan: Plan, rng: np.random.Generator) -> Iterator[Case]:
    from anoco_edge.images.decode import decode_picture

    bodies = [jpeg(rgb) for rgb in pictures(8)]
    clean = [decode_picture(body, "clean") for body in bodies]
    parts = [mjpeg_part(body, len(body)) for body in bodies]
    kinds: dict[str, Callable[[], tuple[list[bytes], dict[str, str]]]] = {
        name: lambda change=change: ([change(b"".join(parts), rng)], {})  # type: ignore[misc]
        for name, change in (("cut", cut), ("drop", drop), ("duplicate", duplicate))
    }
    kinds |= {
        "flips": lambda: ([flips(b"".join(parts), rng)], {}),
        "cut frames": lambda: ([_cut_frames(bodies, rng)], {}),
        "header garbage": lambda: ([_in_headers(parts, rng)], {}),
        "boundary garbage": lambda: (parts, {"content_type": _garbled_type(rng)}),
        "endless header": lambda: ([*parts[:3], b"--frame\r\n" + b"A: b\r\n" * 50_000, *parts], {}),
        "huge length": lambda: ([_huge_length(bodies, rng)], {}),
        "bad chunks": lambda: (parts, {"head": _chunked_head()}),
        "garbage": lambda: ([rng.bytes(int(rng.integers(1, 200_000)))], {}),
    }
    slow = ([bytes([byte]) for byte in parts[0][:150]], {"pause": "0.05"})
    for number in range(plan.choose(330, 33)):
        name = "slow" if number % 30 == 29 else list(kinds)[number % len(kinds)]
        chunks, options = slow if name == "slow" else kinds[name]()
        settings = {
            "content_type": options.get("content_type", "multipart/x-mixed-replace; boundary=frame")
        }
        head = options["head"].encode() if "head" in options else None
        pause = float(options.get("pause", 0))
        with http_bytes(chunks, head=head, pause=pause, **settings) as address:
            broken = verdict([address], clean, pixels=name != "flips")
        yield Case(f"MJPEG, {name}, {number}", broken)


def _cut_frames(bodies: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Cut every second frame, with its length true, shortened or left out."""
    made = []
    for number, body in enumerate(bodies):
        part = body[: int(rng.integers(2, len(body) - 2))] if number % 2 else body
        made.append(mjpeg_part(part, [len(body), len(part), None][int(rng.integers(3))]))
    return b"".join(made)


def _in_headers(parts: Sequence[bytes], rng: np.random.Generator) -> bytes:
    made = []
    for part in parts:
        head, gap, body = part.partition(b"\r\n\r\n")
        changed = [flips, cut, duplicate][int(rng.integers(3))](head, rng)
        made.append(changed + gap + body)
    return b"".join(made)


def _garbled_type(rng: np.random.Generator) -> str:
    kinds = ("", "=", ' boundary="', "boundary=frame; boundary=x", "boundary=" + "x" * 5000)
    return f"multipart/x-mixed-replace;{kinds[int(rng.integers(len(kinds)))]}"


def _huge_length(bodies: Sequence[bytes], rng: np.random.Generator) -> bytes:
    lengths = (2**31, 2**63, 10**30, -1, 1 << 26, 5)
    made = [mjpeg_part(body, lengths[int(rng.integers(len(lengths)))]) for body in bodies[::2]]
    return b"".join(made + [mjpeg_part(body, len(body)) for body in bodies[1::2]])


def _chunked_head() -> str:
    kind = "Content-Type: multipart/x-mixed-replace; boundary=frame"
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{kind}\r\n\r\n"


# --- videos ---------------------------------------------------------------------------------------

VIDEOS = {
    "H.264": ("libx264", "mp4", 0),
    "H.264 with B-frames": ("libx264", "mkv", 3),
    "H.264 in a transport stream": ("libx264", "ts", 2),
    "HEVC": ("libx265", "mp4", 3),
    "MPEG-4": ("mpeg4", "mp4", 2),
}


def _videos(plan: Plan, rng: np.random.Generator) -> Iterator[Case]:
    changes: dict[str, Mutation] = {"zeros": zeros, "cut": cut, "flips": flips}
    made = {}
    for name, (codec, suffix, b_frames) in VIDEOS.items():
        path = plan.folder / f"{codec}{b_frames}.{suffix}"
        encode_video(path, pictures(40), codec, gop=20, b_frames=b_frames)
        clean = [frame.rgb for frame in open_source([str(path)]) if frame.rgb is not None]
        made[name] = (path, path.read_bytes(), clean)
    for number in range(plan.choose(150, 15)):
        name = list(VIDEOS)[number % len(VIDEOS)]
        change = list(changes)[number // len(VIDEOS) % len(changes)]
        path, data, clean = made[name]
        hurt = path.with_stem("hurt")
        hurt.write_bytes(_within_pictures(data, changes[change], rng))
        broken = verdict([str(hurt)], clean, pixels=change != "flips")
        yield Case(f"{name}, {change}, {number}", broken)


def _within_pictures(data: bytes, change: Mutation, rng: np.random.Generator) -> bytes:
    """Change the middle, since the description of the pictures is at the beginning or the end."""
    begin, end = len(data) // 4, len(data) * 3 // 4
    if change is cut:
        return data[: int(rng.integers(begin, len(data)))]
    return data[:begin] + change(data[begin:end], rng) + data[end:]


# --- RTSP -----------------------------------------------------------------------------------------


def _rtsp(plan: Plan, rng: np.random.Generator) -> Iterator[Case]:
    path = encode_video(Path(plan.folder, "rtsp.mp4"), pictures(40), gop=20)
    clean = [frame.rgb for frame in open_source([str(path)]) if frame.rgb is not None]
    with rtsp_server(path) as port:
        for number in range(8):
            hurt = set(rng.integers(0, 80, 4).tolist())
            lost = bool(number % 2)

            def damage(
                count: int, packet: bytes, hurt: set[int] = hurt, lost: bool = lost
            ) -> bytes | None:
                if count not in hurt:
                    return packet
                return None if lost else packet[:60] + bytes(len(packet[60:]))

            with rtsp_proxy(port, damage) as proxy:
                broken = verdict([f"rtsp://127.0.0.1:{proxy}/line"], clean)
            yield Case(f"RTSP, packets {'lost' if lost else 'of zeros'}, {number}", broken)
