"""A frame that was not completely received and decoded is counted and reported, never judged."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from command_line import PATIENCE, defective_picture, jpeg, ok, rows_of, run_cli
from PIL import Image
from stream_servers import (
    RGB,
    encode_video,
    flipped,
    http_bytes,
    missing_rtsp_server,
    mjpeg_part,
    packet_places,
    rtsp_proxy,
    rtsp_server,
    tcp_server,
    zeroed,
)
from tiny_bundle import textured_picture

from anoco_edge.errors import (
    AnocoError,
    EnvironmentMissingError,
    PictureError,
    SourceError,
    UsageError,
)
from anoco_edge.images.decode import decode_picture
from anoco_edge.images.frame import Frame
from anoco_edge.sources import open_source
from anoco_edge.sources.cv2_reader import Cv2Reader
from anoco_edge.sources.live import LiveSource
from anoco_edge.sources.mjpeg_http import open_mjpeg
from anoco_edge.sources.multipart import MAX_BYTES
from anoco_edge.sources.reader import ReaderFrame, StreamEndedError

CUTS = (0.1, 0.3, 0.5, 0.8, 0.99)


@cache
def pictures(count: int = 100, height: int = 160, width: int = 192) -> list[RGB]:
    """Draw a moving texture with a defect that moves across it."""
    rng = np.random.default_rng(5)
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 4, 3), np.uint8)
    texture = np.kron(coarse, np.ones((8, 8, 1), np.uint8))
    made = []
    for number in range(count):
        rgb = np.ascontiguousarray(texture[:height, 2 * number % width :][:, :width])
        rgb[60:90, number % 100 : number % 100 + 30] = (250, 20, 20)
        made.append(rgb)
    return made


@cache
def jpegs() -> list[bytes]:
    return [jpeg(rgb) for rgb in pictures(12)]


def read_all(address: str) -> tuple[list[ReaderFrame], str]:
    """Read every frame of an HTTP MJPEG address without skipping; also return why it ended."""
    reader = open_mjpeg(address, "cam", 5)
    assert reader is not None
    found: list[ReaderFrame] = []
    try:
        while True:
            found.append(reader.read(f"cam#{len(found)}"))
    except StreamEndedError as exc:
        return found, str(exc)
    finally:
        reader.close()


def same(received: ReaderFrame, data: bytes) -> bool:
    return received.rgb is not None and np.array_equal(received.rgb, decode_picture(data, "x"))


# --- MJPEG over HTTP ------------------------------------------------------------------------------


@pytest.mark.parametrize("share", CUTS)
@pytest.mark.parametrize("length", ["true", "cut", "none"])
def test_a_cut_frame_is_an_error_and_the_next_one_is_whole(share: float, length: str) -> None:
    parts = []
    for number, body in enumerate(jpegs()):
        cut = body[: int(len(body) * share)] if number % 2 else body
        stated = {"true": len(body), "cut": len(cut), "none": None}[length]
        parts.append(mjpeg_part(cut, stated))
    with http_bytes(parts) as address:
        found, _ = read_all(address)
    assert len(found) == len(parts)
    for number, received in enumerate(found):
        if number % 2:
            assert received.rgb is None and isinstance(received.error, PictureError)
            assert f"cam#{number}" in str(received.error)
        else:
            assert same(received, jpegs()[number])


def test_a_connection_that_drops_within_a_frame() -> None:
    last = mjpeg_part(jpegs()[2], len(jpegs()[2]))
    parts = [mjpeg_part(body, len(body)) for body in jpegs()[:2]]
    with http_bytes([*parts, last[: len(last) // 2]]) as address:
        found, why = read_all(address)
    assert [received.error is None for received in found] == [True, True, False]
    assert "the connection ended within it" in str(found[2].error)
    assert why == "the connection ended"


def chunked(data: bytes) -> bytes:
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)] + [b""]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def plain(body: bytes, before: bytes = b"--frame", end: bytes = b"\r\n", header: str = "") -> bytes:
    line = end if end else b"\r\n"
    return before + line + header.format(len(body)).encode() + line + body + end


LENGTH = "Content-Type: image/jpeg\r\nContent-Length: {}\r\n"
FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "usual": ("boundary=frame", lambda b: plain(b, header=LENGTH)),
    "quoted": ('boundary="frame"', lambda b: plain(b, header=LENGTH)),
    "dashes in the name": ("boundary=--frame", lambda b: plain(b, header=LENGTH)),
    "dashes in the name, added again": (
        "boundary=--frame",
        lambda b: plain(b, b"----frame", header=LENGTH),
    ),
    "no dashes at all": ("boundary=frame", lambda b: plain(b, b"frame", header=LENGTH)),
    "capitals and spaces": (
        "Boundary = frame ; x=1",
        lambda b: plain(b, header="CONTENT-LENGTH :  {} \r\n"),
    ),
    "no length": ("boundary=frame", lambda b: plain(b, header="Content-Type: image/jpeg\r\n")),
    "no header": ("boundary=frame", plain),
    "a length of 0": ("boundary=frame", lambda b: plain(b, header="Content-Length: 0\r\n")),
    "line feeds": ("boundary=frame", lambda b: plain(b, end=b"\n", header="A: b\n")),
    "no line end after a frame": ("boundary=frame", lambda b: plain(b, end=b"", header=LENGTH)),
    "no line end, no length": ("boundary=frame", lambda b: plain(b, end=b"")),
    "no boundary named": ("", lambda b: plain(b, b"--myboundary", header=LENGTH)),
    "sound between": (
        "boundary=frame",
        lambda b: plain(b, header=LENGTH) + b"--frame\r\nContent-Type: audio/basic\r\n\r\nmu\r\n",
    ),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_the_forms_in_which_cameras_write_it(form: str) -> None:
    parameters, write = FORMS[form]
    kind = f"multipart/x-mixed-replace; {parameters}"
    data = b"".join(map(write, jpegs()))
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    with http_bytes(pieces, content_type=kind) as address:
        found, _ = read_all(address)
    assert len(found) == len(jpegs()), [received.error for received in found]
    assert all(same(received, body) for received, body in zip(found, jpegs(), strict=True))


def test_chunks_a_closing_boundary_and_a_preamble() -> None:
    body = b"\r\n" + b"".join(mjpeg_part(one, len(one)) for one in jpegs()) + b"--frame--\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
    head += b"Content-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
    with http_bytes([chunked(body)], head=head) as address:
        found, why = read_all(address)
    assert all(same(received, one) for received, one in zip(found, jpegs(), strict=True))
    assert why == "the connection ended"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (b"--frame\r\n" + b"X: y\r\n" * 9000, "header has no end"),
        (mjpeg_part(b"hello" * 30, 150), "not a picture"),
        (mjpeg_part(b"\xff\xd8 and no end", None), "no JPEG end"),
        (mjpeg_part(b"", None), "not a picture"),
        (b"--frame\r\nContent-Length: -5\r\n\r\nxx\r\n", "not one number"),
        (b"--frame\r\nContent-Length: 99999999999999\r\n\r\nxx\r\n", "Content-Length is 9999"),
        (b"--frame\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx\r\n", "one number"),
        (b"stray bytes\r\n", "belong to no frame"),
    ],
)
def test_what_is_no_frame_is_counted_and_costs_only_itself(part: bytes, words: str) -> None:
    good = [mjpeg_part(body, len(body)) for body in jpegs()]
    with http_bytes([*good[:3], part, *good[3:]]) as address:
        found, _ = read_all(address)
    errors = [received for received in found if received.error]
    assert len(errors) == 1 and words in str(errors[0].error)
    assert sum(received.rgb is not None for received in found) == len(good)


def test_a_frame_without_end_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anoco_edge.sources.multipart.MAX_BYTES", 100_000)
    good = mjpeg_part(jpegs()[0], len(jpegs()[0]))
    with http_bytes([mjpeg_part(b"\xff\xd8" + b"x" * 500_000, None), good]) as address:
        found, _ = read_all(address)
    assert all(received.error for received in found[:-1]) and found[-1].error is None
    assert MAX_BYTES <= 64 << 20


def test_a_slow_answer_is_not_waited_for() -> None:
    head = [bytes([byte]) for byte in b"HTTP/1.0 200 OK\r\nContent-Type: " + b"x" * 10_000]
    began = time.monotonic()
    with (
        http_bytes(head, head=b"", pause=0.05) as address,
        pytest.raises(EnvironmentMissingError, match="no answer within 1 s"),
    ):
        open_source([address], timeout=1)
    assert time.monotonic() - began < 10


def test_a_slow_frame_is_a_lost_stream() -> None:
    body = mjpeg_part(jpegs()[0], len(jpegs()[0]))
    drops = [body, *(body[at : at + 1] for at in range(len(body) - 10))]
    with (
        http_bytes(drops, pause=0.02) as address,
        open_source([address], timeout=1) as source,
        pytest.raises(SourceError, match="stopped after 1 frames: nothing came for 1 s"),
    ):
        list(source)


@pytest.mark.parametrize("kind", ["image/jpeg", "text/html; charset=utf-8"])
def test_an_address_of_something_else_is_said(kind: str) -> None:
    with http_bytes([jpegs()[0]], content_type=kind) as address:
        with pytest.raises(UsageError, match="not a stream: it answers with") as caught:
            open_source([address], timeout=3)
        assert kind.partition(";")[0] in str(caught.value)


def test_a_video_over_http_is_read_by_ffmpeg(tmp_path: Path) -> None:
    clip = encode_video(tmp_path / "clip.ts", pictures(20), gop=5)
    with (
        http_bytes([clip.read_bytes()], content_type="video/mp2t") as address,
        open_source([address], timeout=10) as source,
        pytest.raises(SourceError, match="stopped after 20 frames"),
    ):
        assert all(frame.error is None for frame in source)
    assert source.skipped < 20


# --- user and password ----------------------------------------------------------------------------


@contextmanager
def guarded_camera(scheme: str) -> Iterator[str]:
    """Start a camera that asks for user op and password s/cret, by Basic or Digest.

    The path /old redirects to it.
    """
    realm, nonce = "cam", "abc123"

    def allowed(request: str) -> bool:
        found = re.search(r"^Authorization: (\w+) (.*)$", request, re.MULTILINE)
        if not found or found[1] != scheme:
            return False
        if scheme == "Basic":
            return base64.b64decode(found[2].strip()) == b"op:s/cret"
        given = dict(re.findall(r'(\w+)="?([^",\r\n]+)"?', found[2]))

        def md5(*words: str) -> str:
            return hashlib.md5(":".join(words).encode()).hexdigest()

        first, second = md5("op", realm, "s/cret"), md5("GET", "/live")
        return given["response"] == md5(first, nonce, given["nc"], given["cnonce"], "auth", second)

    def serve(connection: socket.socket) -> None:
        request = connection.recv(1 << 16).decode()
        body = b"".join(mjpeg_part(one, len(one)) for one in jpegs())
        if request.startswith("GET /old"):
            connection.sendall(b"HTTP/1.0 302 Found\r\nLocation: /live\r\n\r\n")
        elif request.startswith("GET /round"):
            connection.sendall(b"HTTP/1.0 302 Found\r\nLocation: /round\r\n\r\n")
        elif request.startswith("GET /away"):
            connection.sendall(b"HTTP/1.0 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")
        elif allowed(request):
            head = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame"
            connection.sendall(head + b"\r\n\r\n" + body)
        else:
            extra = f', nonce="{nonce}", qop="auth"' if scheme == "Digest" else ""
            want = f'HTTP/1.0 401 Unauthorized\r\nWWW-Authenticate: {scheme} realm="{realm}"{extra}'
            connection.sendall(want.encode() + b"\r\n\r\n")

    with tcp_server(serve) as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("scheme", ["Basic", "Digest"])
@pytest.mark.parametrize("path", ["live", "old"])
def test_user_and_password(scheme: str, path: str) -> None:
    with guarded_camera(scheme) as place:
        found, _ = read_all(f"http://op:s%2Fcret@{place}/{path}")
        assert len(found) == len(jpegs())
        for user in ("", "op:wrong@"):
            with pytest.raises(EnvironmentMissingError, match="401") as caught:
                open_source([f"http://{user}{place}/{path}"], timeout=3)
            assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("path", ["round", "away"])
def test_redirections_end(path: str) -> None:
    with (
        guarded_camera("Basic") as place,
        pytest.raises(EnvironmentMissingError, match="no stream"),
    ):
        open_source([f"http://{place}/{path}"], timeout=3)


def test_an_address_that_cannot_be_split() -> None:
    with pytest.raises(UsageError, match="special characters") as caught:
        open_source(["http://op:pa/ss@127.0.0.1/1"], timeout=1)
    assert "pa/ss" not in str(caught.value)


# --- sizes ----------------------------------------------------------------------------------------


def test_a_stream_that_changes_its_size() -> None:
    sizes = [(640, 480), (640, 480), (1000, 300), (640, 480), (480, 640)]
    bodies = [jpeg(np.full((height, width, 3), 90, np.uint8)) for width, height in sizes]
    frames: list[Frame] = []
    with (
        http_bytes([mjpeg_part(body, len(body)) for body in bodies], pause=0.15) as address,
        open_source([address]) as source,
        pytest.raises(SourceError),
    ):
        frames.extend(source)
    assert [frame.index for frame in frames] == list(range(5))
    assert [frame.error is None for frame in frames] == [True, True, False, True, False]
    assert "#2 is 1000x300 pixels, but the stream began with 640x480" in str(frames[2].error)
    assert "#4 is 480x640 pixels" in str(frames[4].error) and frames[4].rgb is None


def test_a_video_that_changes_its_size(tmp_path: Path) -> None:
    one = encode_video(tmp_path / "a.h264", pictures(10), gop=5)
    other = encode_video(tmp_path / "b.h264", pictures(10, 96, 128), gop=5)
    both = tmp_path / "both.h264"
    both.write_bytes(one.read_bytes() + other.read_bytes() + one.read_bytes())
    frames = list(open_source([str(both)]))
    assert [frame.error is None for frame in frames] == [True] * 10 + [False] * 10 + [True] * 10
    assert "is 128x96 pixels, but the stream began with 192x160" in str(frames[10].error)


# --- videos ---------------------------------------------------------------------------------------

CODECS = {
    "H.264": ("libx264", "mp4", {}),
    "H.264 with B-frames": ("libx264", "mp4", {"b_frames": 3}),
    "H.264 in a transport stream": ("libx264", "ts", {"b_frames": 2}),
    "HEVC": ("libx265", "mp4", {"b_frames": 3}),
    "MPEG-4": ("mpeg4", "mp4", {"b_frames": 2}),
    "MJPEG": ("mjpeg", "avi", {}),
}


def encoded(folder: Path, codec: str, count: int = 100, gop: int = 25) -> Path:
    name, suffix, options = CODECS[codec]
    return encode_video(folder / f"clip.{suffix}", pictures(count), name, gop=gop, **options)  # type: ignore[arg-type]


def frames_of(path: Path) -> list[Frame]:
    return list(open_source([str(path)]))


def wrong_ones(frames: list[Frame], clean: list[Frame]) -> list[int]:
    """Return frames that were given as good but equal none of the clean ones."""

    def near(frame: Frame, other: Frame) -> bool:
        assert frame.rgb is not None and other.rgb is not None
        return bool(cv2.absdiff(frame.rgb, other.rgb).mean() < 2)

    by_index = {frame.index: frame for frame in clean}
    return [
        frame.index
        for frame in frames
        if frame.rgb is not None
        and not (frame.index in by_index and near(frame, by_index[frame.index]))
        and not any(near(frame, other) for other in clean)
    ]


@pytest.mark.parametrize("codec", list(CODECS))
@pytest.mark.parametrize("gop", [5, 100])
def test_clean_videos_raise_no_alarm(tmp_path: Path, codec: str, gop: int) -> None:
    frames = frames_of(encoded(tmp_path, codec, gop=gop))
    assert len(frames) == 100
    assert [frame.error for frame in frames] == [None] * 100
    for frame, rgb in zip(frames, pictures(), strict=True):
        assert frame.rgb is not None and np.abs(frame.rgb.astype(int) - rgb).mean() < 12


def test_open_groups_of_pictures_raise_no_alarm(tmp_path: Path) -> None:
    options = {"x264-params": "open-gop=1:keyint=10:min-keyint=10:scenecut=0:bframes=3"}
    clip = encode_video(tmp_path / "open.mp4", pictures(), options=options)
    assert [frame.error for frame in frames_of(clip)] == [None] * 100


DAMAGES: dict[str, Callable[[bytes, int, int], bytes]] = {
    "zeros": lambda data, at, size: zeroed(data, at + size // 2, size // 3),
    "noise": lambda data, at, size: flipped(data, at + size // 2, size // 3, seed=at),
    "a whole packet of zeros": lambda data, at, size: zeroed(data, at, size),
}


# Noise in HEVC and in small B-frames is not included. With few large blocks in a picture, FFmpeg
# decodes it to some picture and finds nothing wrong, because video has no checksums.
DAMAGED_VIDEOS = [
    *(("H.264", damage) for damage in DAMAGES),
    *(("H.264 with B-frames", damage) for damage in DAMAGES if damage != "noise"),
    *(("HEVC", damage) for damage in DAMAGES if damage != "noise"),
    *(("MPEG-4", damage) for damage in DAMAGES),
    ("MJPEG", "a whole packet of zeros"),
]


@pytest.mark.parametrize(("codec", "damage"), DAMAGED_VIDEOS)
def test_a_damaged_video_is_counted_up_to_the_next_intra_frame(
    tmp_path: Path, codec: str, damage: str
) -> None:
    clip = encoded(tmp_path, codec, 60, gop=20)
    clean, data = frames_of(clip), clip.read_bytes()
    places = packet_places(clip)
    for number in (0, 20, 30):  # intra frames, and one within a group
        at, size, _ = places[number]
        clip.write_bytes(DAMAGES[damage](data, at, size))
        frames = frames_of(clip)
        bad = [frame.index for frame in frames if frame.error]
        assert bad, f"nothing was noticed of packet {number}"
        assert wrong_ones(frames, clean) == [], (number, bad)
        # There are never fewer; a decoder that lost its references may show one frame twice.
        assert 60 <= len(frames) <= 64, (number, len(frames))
        # B-frames before an intra frame may depend on it, and MPEG-4 places them up to 2 later.
        first, end = (0, 20) if number == 0 else (17, 40)
        assert first <= bad[0] and bad[-1] < end + 3, (number, bad)
        assert all(
            "corrupt" in str(f.error)
            or "damaged" in str(f.error)
            or "not a picture" in str(f.error)
            for f in frames
            if f.error
        )


def test_a_cut_transport_stream(tmp_path: Path) -> None:
    clip = encoded(tmp_path, "H.264 in a transport stream")
    clean, data = frames_of(clip), clip.read_bytes()
    middle = len(data) // 2 // 188 * 188
    clip.write_bytes(data[:middle] + data[middle + 188 * 7 :])
    frames = frames_of(clip)
    assert any(frame.error for frame in frames) and wrong_ones(frames, clean) == []


def test_the_reasons_are_said(tmp_path: Path) -> None:
    clip = encoded(tmp_path, "H.264")
    at, size, _ = packet_places(clip)[30]
    clip.write_bytes(zeroed(clip.read_bytes(), at + 30, size - 30))
    errors = [str(frame.error) for frame in frames_of(clip) if frame.error]
    assert len(errors) == 20 and "clip.mp4#30 is corrupt" in errors[0]
    assert "clip.mp4#49 depends on a corrupt frame before it" in errors[-1]


def test_infer_says_what_is_damaged(here: Path) -> None:
    parts = [textured_picture(500 + k % 4) for k in range(40)]
    clip = encode_video(Path("clip.mp4"), parts, gop=20, options={"crf": "10"})
    assert ok("infer", "line.anoco", clip, "--json").json["summary"]["failed"] == 0
    at, size, _ = packet_places(clip)[10]
    clip.write_bytes(zeroed(clip.read_bytes(), at + 20, size - 20))
    ran = run_cli("infer", "line.anoco", clip, "--json")
    assert ran.code == 1 and "10 of 40 pictures could not be inspected" in ran.complaint
    assert "clip.mp4#10 is corrupt" in ran.complaint
    assert ran.json["summary"]["failed"] == 10 and ran.json["summary"]["pictures"] == 40
    failed = [row["source"] for row in ran.json["results"] if row["verdict"] is None]
    assert failed == [f"clip.mp4#{number}" for number in range(10, 20)]


def test_infer_judges_no_cut_frame(here: Path) -> None:
    """This is the reported case: defective parts that were half received came out good."""
    good, bad = jpeg(textured_picture(500)), jpeg(defective_picture())
    parts = []
    for share in CUTS:
        parts += [mjpeg_part(good, len(good)), mjpeg_part(bad[: int(len(bad) * share)], len(bad))]
    with http_bytes(parts, pause=0.4) as address:
        ran = run_cli("infer", "line.anoco", address, "--out", "out", "--threshold", "9")
    assert ran.code == 1
    verdicts = {int(row["source"].rpartition("#")[2]): row for row in rows_of(Path("out"))}
    assert len(verdicts) > 5, ran.err  # a busy machine may have skipped some
    for number, row in verdicts.items():
        assert row["verdict"] == (None if number % 2 else "good"), row
        assert not number % 2 or "not received whole" in row["error"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.mp4")
    Image.new("RGB", (32, 32)).save(tmp_path / "x.png")
    for inputs in (["x.mp4"], ["*.mp4"], ["x.png", "x.mp4"]):
        with pytest.raises(AnocoError, match="not a regular file"):
            open_source([str(tmp_path / name) for name in inputs])
    with pytest.raises(UsageError, match="not a device"):
        open_source([], camera=str(tmp_path / "x.mp4"))


def test_a_playlist_reaches_no_network(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with tcp_server(lambda connection: asked.append(connection.recv(100))) as port:
        lines = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:{port}/a.ts\n"
        (tmp_path / "list.mp4").write_text(lines)
        with pytest.raises(PictureError, match="not a video"):
            list(open_source([str(tmp_path / "list.mp4")]))
    assert asked == []


@pytest.mark.parametrize("suffix", ["mp4", "avi", "mkv"])
def test_colours_are_as_opencv_gives_them(tmp_path: Path, suffix: str) -> None:
    clip = encode_video(tmp_path / f"clip.{suffix}", pictures(10), gop=5)
    capture = cv2.VideoCapture(str(clip), cv2.CAP_FFMPEG)
    for frame in frames_of(clip):
        good, bgr = capture.read()
        assert good and frame.rgb is not None
        assert np.abs(frame.rgb.astype(int) - bgr[..., ::-1]).max() <= 3


# --- RTSP -----------------------------------------------------------------------------------------


@pytest.fixture
def rtsp(tmp_path: Path) -> Iterator[int]:
    """Start an RTSP server that plays 75 frames, every 25th an intra frame; return its port."""
    if words := missing_rtsp_server():
        pytest.skip(f"gst-rtsp-server: no stream over RTSP was read ({words})")
    with rtsp_server(encode_video(tmp_path / "clip.mp4", pictures(75), gop=25)) as port:
        yield port


def play(port: int, transport: str = "tcp") -> tuple[list[Frame], int, str]:
    frames: list[Frame] = []
    with open_source([f"rtsp://127.0.0.1:{port}/line"], timeout=10) as source:
        try:
            frames.extend(source)
        except SourceError as exc:
            return frames, source.skipped, str(exc)
    raise AssertionError("a stream ends with an error")


def test_a_clean_rtsp_stream_raises_no_alarm(rtsp: int) -> None:
    frames, skipped, why = play(rtsp)
    assert len(frames) + skipped == 75 and "stopped after 75 frames" in why
    assert [frame.error for frame in frames] == [None] * len(frames)


def break_packet(number: int, packet: bytes) -> bytes:
    hurt = number % 40 == 17 and len(packet) > 200
    return zeroed(packet, 100, 80) if hurt else packet


DAMAGED_PACKETS: dict[str, Callable[[int, bytes], bytes | None]] = {
    "lost": lambda number, packet: None if number % 40 == 17 else packet,
    "damaged": break_packet,
}


@pytest.mark.parametrize("damage", list(DAMAGED_PACKETS))
def test_a_damaged_rtsp_stream_is_counted(rtsp: int, tmp_path: Path, damage: str) -> None:
    clean = frames_of(tmp_path / "clip.mp4")
    with rtsp_proxy(rtsp, DAMAGED_PACKETS[damage]) as port:
        frames, _, _ = play(port)
    bad = [frame for frame in frames if frame.error]
    assert bad and len(bad) < len(frames)
    assert wrong_ones(frames, clean) == []


def test_infer_says_that_a_stream_is_damaged(rtsp: int, here: Path) -> None:
    with rtsp_proxy(rtsp, DAMAGED_PACKETS["lost"]) as port:
        address = f"rtsp://127.0.0.1:{port}/line"
        ran = run_cli("infer", "line.anoco", address, "--json", "--threshold", "9")
    assert ran.code == 1 and '"failed": 0' not in ran.out and "corrupt frame" in ran.out


def test_rtsp_over_udp_when_asked(rtsp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOCO_EDGE_RTSP_TRANSPORT", "udp")
    frames, _, _ = play(rtsp)
    assert sum(frame.error is None for frame in frames) > 20


def test_a_transport_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOCO_EDGE_RTSP_TRANSPORT", "pigeon")
    with pytest.raises(UsageError, match="ANOCO_EDGE_RTSP_TRANSPORT is 'pigeon'"):
        open_source(["rtsp://127.0.0.1:9/1"], timeout=1)


# --- V4L2 -----------------------------------------------------------------------------------------


class Capture:
    """A double of cv2.VideoCapture for a V4L2 camera with MJPG."""

    def __init__(self, buffers: list[bytes], backend: str = "V4L2") -> None:
        self.buffers, self.backend, self.raw = buffers, backend, False

    def getBackendName(self) -> str:
        return self.backend

    def get(self, what: int) -> float:
        assert what == cv2.CAP_PROP_FOURCC
        return float(cv2.VideoWriter.fourcc(*"MJPG"))

    def set(self, what: int, value: float) -> bool:
        assert (what, value) == (cv2.CAP_PROP_CONVERT_RGB, 0)
        self.raw = True
        return True

    def grab(self) -> bool:
        return bool(self.buffers)

    def retrieve(self) -> tuple[bool, Any]:
        data = np.frombuffer(self.buffers.pop(0), np.uint8)
        return True, data[None] if self.raw else cv2.imdecode(data, cv2.IMREAD_COLOR)

    def release(self) -> None:
        pass


def test_a_v4l2_camera_in_mjpg_hands_over_its_jpegs() -> None:
    bodies = jpegs()[:3]
    buffers = [bodies[0] + bytes(500), bodies[1][: len(bodies[1]) // 3] + bytes(500), bodies[2]]
    reader = Cv2Reader(Capture(buffers))
    whole, cut, last = (reader.read(f"camera:0#{number}") for number in range(3))
    assert same(whole, bodies[0]) and same(last, bodies[2])
    assert cut.rgb is None and "camera:0#1 was not received whole" in str(cut.error)
    with pytest.raises(StreamEndedError):
        reader.read("camera:0#3")


def test_other_backends_decode_by_themselves() -> None:
    capture = Capture([jpegs()[0]], "GSTREAMER")
    received = Cv2Reader(capture).read("camera:0#0")
    assert not capture.raw and received.rgb is not None and received.rgb.shape == (160, 192, 3)


def test_a_reader_that_fails_ends_the_source() -> None:
    class Broken:
        def read(self, name: str) -> ReaderFrame:
            raise StreamEndedError("it broke")

        def interrupt(self) -> None:
            pass

        def close(self) -> None:
            pass

    with (
        LiveSource(Broken(), "cam", limit=None, timeout=PATIENCE) as source,
        pytest.raises(SourceError, match="cam stopped after 0 frames: it broke"),
    ):
        list(source)


def test_messages_of_ffmpeg_stay_out_of_an_application_that_did_not_ask() -> None:
    import logging

    from anoco_edge.sources.av_reader import load_av

    load_av()
    assert not logging.getLogger("libav").isEnabledFor(logging.ERROR)
    assert av.logging.get_skip_repeated() is False


def test_a_cut_video_without_its_index_is_refused(tmp_path: Path) -> None:
    """What is left of an MP4 without its index may look like another kind of file."""
    clip = encoded(tmp_path, "HEVC", 40, gop=20)
    data = clip.read_bytes()
    for share in range(30, 100, 5):
        clip.write_bytes(data[: len(data) * share // 100])
        with pytest.raises((PictureError, SourceError)):
            assert not any(frame.rgb is not None for frame in frames_of(clip))
