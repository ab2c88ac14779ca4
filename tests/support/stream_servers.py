"""Serves streams on the loopback interface, and damages what they send."""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RGB = NDArray[np.uint8]
SYSTEM_PYTHON = "/usr/bin/python3"  # where Debian's GStreamer bindings are

_RTSP_SERVER = """
import sys
import gi
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer
Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service("0")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    f"( filesrc location={sys.argv[1]} ! qtdemux ! h264parse config-interval=-1"
    " ! rtph264pay name=pay0 mtu=600 )"
)
server.get_mount_points().add_factory("/line", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
"""


@cache
def missing_rtsp_server() -> str:
    """Return why this machine cannot serve RTSP, or an empty text if it can."""
    code = "import gi\n"
    code += "gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0')\n"
    code += "from gi.repository import Gst, GstRtspServer; Gst.init(None)\n"
    code += "names = 'qtdemux', 'h264parse', 'rtph264pay'\n"
    code += "assert all(map(Gst.ElementFactory.find, names)), names"
    try:
        ran = subprocess.run([SYSTEM_PYTHON, "-c", code], capture_output=True, text=True)
    except OSError as exc:
        return str(exc)
    return ran.stderr.strip().rpartition("\n")[2] if ran.returncode else ""


@contextmanager
def rtsp_server(video: Path) -> Iterator[int]:
    """Play an H.264 video in MP4 with gst-rtsp-server at /line, and yield its port."""
    process = subprocess.Popen(
        [SYSTEM_PYTHON, "-c", _RTSP_SERVER, str(video)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a server that calls `serve` in a thread for each connection, and yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=work, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@contextmanager
def rtsp_proxy(port: int, damage: Callable[[int, bytes], bytes | None]) -> Iterator[int]:
    """Run a proxy that passes each RTP packet through `damage`, and yield its port.

    A packet for which `damage` returns None is dropped.
    """

    def serve(client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as server:
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            stream = server.makefile("rb")
            number = 0
            while first := stream.read(1):
                if first != b"$":  # a line of RTSP
                    client.sendall(first + stream.readline())
                    continue
                channel, size = stream.read(1), stream.read(2)
                packet: bytes | None = stream.read(int.from_bytes(size, "big"))
                if channel == b"\0" and packet is not None:
                    packet = damage(number, packet)
                    number += 1
                if packet is not None:
                    client.sendall(b"$" + channel + len(packet).to_bytes(2, "big") + packet)

    with tcp_server(serve) as proxy:
        yield proxy


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


@contextmanager
def http_bytes(
    chunks: Sequence[bytes],
    *,
    content_type: str = "multipart/x-mixed-replace; boundary=frame",
    pause: float = 0.0,
    head: bytes | None = None,
    silent: float = 0.0,
) -> Iterator[str]:
    """Run an HTTP server that answers with these bytes, and yield its address.

    It waits `pause` seconds after each chunk and `silent` seconds before it closes the connection.
    """
    usual = f"HTTP/1.0 200 OK\r\nContent-Type: {content_type}\r\n\r\n".encode()

    def serve(connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(1 << 16)
        connection.sendall(usual if head is None else head)
        for chunk in chunks:
            connection.sendall(chunk)
            time.sleep(pause)
        time.sleep(silent)

    with tcp_server(serve) as port:
        yield f"http://127.0.0.1:{port}/live.mjpg"


def mjpeg_part(body: bytes, length: int | None = None, boundary: bytes = b"frame") -> bytes:
    """Return one part of an MJPEG stream.

    `length` is the value of Content-Length, which None leaves out.
    """
    stated = b"" if length is None else b"Content-Length: %d\r\n" % length
    return b"--%s\r\nContent-Type: image/jpeg\r\n%s\r\n%s\r\n" % (boundary, stated, body)


def encode_video(
    path: Path,
    pictures: Sequence[RGB],
    codec: str = "libx264",
    *,
    gop: int = 50,
    b_frames: int = 0,
    options: dict[str, str] | None = None,
) -> Path:
    """Write RGB pictures as a video of 25 frames a second, with one intra frame in every `gop`."""
    import av

    with av.open(str(path), "w") as container:
        chosen = {**_encoder(codec, gop, b_frames), **(options or {})}
        stream: Any = container.add_stream(codec, rate=25, options=chosen)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.thread_count = 1
        for rgb in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def _encoder(codec: str, gop: int, b_frames: int) -> dict[str, str]:
    options = {"g": str(gop), "bf": str(b_frames)}
    if codec == "libx264":
        options["x264-params"] = f"keyint={gop}:min-keyint={gop}:scenecut=0:bframes={b_frames}"
    elif codec == "libx265":
        options["x265-params"] = (
            f"keyint={gop}:min-keyint={gop}:scenecut=0:bframes={b_frames}:log-level=none:pools=1"
            ":frame-threads=1"
        )
    elif codec in ("mpeg4", "mjpeg"):
        options["b"] = "8000000"
    return options


def packet_places(path: Path) -> list[tuple[int, int, bool]]:
    """Return the position and size in the file of each packet of a video, and if it is intra."""
    import av

    with av.open(str(path)) as container:
        packets = [p for p in container.demux(video=0) if p.size]
        return [(p.pos, p.size, p.is_keyframe) for p in packets if p.pos is not None]


def zeroed(data: bytes, at: int, count: int) -> bytes:
    """Return the bytes with a block of zeros in them, as a disk leaves them after a power cut."""
    return data[:at] + bytes(min(count, len(data) - at)) + data[at + count :]


def flipped(data: bytes, at: int, count: int, seed: int) -> bytes:
    """Return the bytes with `count` of them replaced by random ones."""
    noise = random.Random(seed).randbytes(count)
    return data[:at] + noise + data[at + count :]
