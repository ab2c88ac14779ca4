"""Runs `anoco-edge` as users do, and makes videos and a network camera for it to inspect."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
from paths import PACKAGES, python_path
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

PATIENCE = 240.0  # seconds; a few are usual, but the machine may be busy with other things


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong; it must come last, after no traceback."""
        assert "Traceback" not in self.err and "internal error" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("anoco-edge: ")]
        assert len(lines) == 1 and self.err.splitlines()[-1] == lines[0], self.err
        return lines[0]


def run_cli(*args: object) -> Ran:
    """Run the entry point of the command line in this process."""
    from anoco_edge.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    before = signal.getsignal(signal.SIGTERM)
    argv = ["anoco-edge", *map(str, args)]
    try:
        with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "argv", argv):
            main()
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    finally:
        signal.signal(signal.SIGTERM, before)
    return Ran(code, out.getvalue(), err.getvalue())


def ok(*args: object) -> Ran:
    """Run a command that must succeed."""
    ran = run_cli(*args)
    assert ran.code == 0, ran.err or ran.out
    return ran


def fails(code: int, *args: object) -> str:
    """Run a command that must end with this code and one clear line, and return the line."""
    ran = run_cli(*args)
    assert ran.code == code, (ran.code, ran.err, ran.out)
    return ran.complaint


def environment() -> dict[str, str]:
    """Return the environment with which a process imports the packages of this tree."""
    return {**os.environ, "PYTHONPATH": python_path(*PACKAGES)}


def start(*args: object, **options: Any) -> subprocess.Popen[str]:
    """Start `anoco-edge` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "anoco_edge", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **options,
    )


def run_process(*args: object, **options: Any) -> Ran:
    """Run `anoco-edge` in a process of its own and wait until it ends."""
    process = start(*args, **options)
    out, err = process.communicate(timeout=PATIENCE)
    return Ran(process.returncode, out, err)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of results.jsonl, every line of which must be complete."""
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def names(folder: str) -> list[str]:
    """Return the names of the entries of a folder, sorted."""
    return sorted(path.name for path in Path(folder).glob("*"))


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file with its content, to check that nothing was changed or left behind."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def make_line(folder: Path) -> Path:
    """Make line.anoco, which has enrolled the four pictures of good/.

    parts/ holds three other pictures of good parts.
    """
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", folder / "line.anoco", *write_good_pictures(folder / "good", 4))
    write_good_pictures(folder / "parts", 3, seed=50)
    return folder


def refused(code: int, *args: object) -> str:
    """Run a command as `fails` does; it must also change no file in the current directory."""
    before = tree(Path())
    line = fails(code, *args)
    assert tree(Path()) == before
    return line


def write_video(path: Path | str, pictures: Sequence[Any]) -> str:
    """Write RGB pictures of one size as a video with 25 frames a second."""
    size = pictures[0].shape[1::-1]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25, size)
    for rgb in pictures:
        writer.write(np.ascontiguousarray(rgb[..., ::-1]))
    writer.release()
    return str(path)


def defective_picture(seed: int = 77) -> Any:
    """Return a good part with a red patch, which the tiny backbone cannot overlook."""
    rgb = textured_picture(seed)
    rgb[30:55, 30:60] = (250, 20, 20)
    return rgb


def jpeg(rgb: Any) -> bytes:
    """Encode a picture as JPEG, as a network camera does."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@contextmanager
def network_camera(count: int, pause: float = 0.0) -> Iterator[str]:
    """Serve an HTTP MJPEG camera and yield its address.

    The camera sends `count` frames and then closes the connection.
    """
    over = threading.Event()
    pictures = [jpeg(textured_picture(500 + k)) for k in range(37)]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            for number in range(count):
                body = pictures[number % len(pictures)]
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n"
                try:
                    self.wfile.write(head.encode() + body + b"\r\n")
                except OSError:  # the reader has closed the connection
                    return
                if over.wait(pause):
                    return

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/live.mjpg"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
