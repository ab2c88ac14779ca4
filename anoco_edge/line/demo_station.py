"""A station and a PLC without hardware: what `anoco-edge serve --demo` runs."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from anoco_edge.bundle import create_builtin_bundle
from anoco_edge.demo.line import make_parts, teach
from anoco_edge.line.words.constants import Reason

MATERIAL = "washer"
PART_SECONDS = 1.0
_STATION = """
[station]
name = "demo"
folder = "demo"

[line]
deadline_ms = 2000
acquire_ms = 500
judge_hang_ms = 10000
alive_ms = 3000

[[cameras]]
name = "top"
source = "rendered:{material}"

[[products]]
number = 1
name = "{material}"
captures = [{{ camera = "top", bundle = "demo.anoco" }}]

[tcp]
port = {port}

[http]
port = {http}
"""
_PAGE = """
[page]
port = {page}
"""
PAGE_PORT = 8080  # if it is free


def write_demo_bundle(folder: Path) -> Path:
    """Teach a new bundle rendered parts and return its path."""
    references, _ = make_parts(MATERIAL, 0, 0)
    path = folder / "demo.anoco"
    create_builtin_bundle(path, prepare=lambda bundle: teach(bundle, MATERIAL, references))
    return path


def page_installed() -> bool:
    """Whether the packages are there that serve the page of a station."""
    return all(importlib.util.find_spec(each) for each in ("fastapi", "uvicorn", "websockets"))


def write_demo_station(folder: Path, port: int = 0, *, page: bool = False) -> Path:
    """Teach a bundle rendered parts and write the station.toml of a line that inspects them.

    Port 0 chooses one that is free. With `page` the station has a page.
    """
    write_demo_bundle(folder)
    path = folder / "station.toml"
    ports = {"port": port or free_port(), "http": free_port()}
    text = _STATION.format(material=MATERIAL, **ports)
    if page:
        text += _PAGE.format(page=free_port(PAGE_PORT))
    path.write_text(text, encoding="utf-8")
    return path


def free_port(wanted: int = 0) -> int:
    """Return a port of the loopback interface that nobody uses now, the wanted one if it can."""
    with socket.socket() as trial:
        if wanted:  # a server that ended a moment ago is no obstacle to the next one
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", wanted))
        except OSError:
            return free_port()
        return int(trial.getsockname()[1])


def what_it_does(answer: str) -> str:
    """Say in words what a PLC does after the answer to a trigger.

    >>> what_it_does("R,5,FAIL,0,22076,14"), what_it_does("R,6,NOVERDICT,1,0,2000")
    ('rejects it: 22.08 of the threshold', 'rejects it: no verdict, DEADLINE')
    """
    _, _, verdict, reason, score, _ = answer.split(",")
    if verdict == "NOVERDICT":
        return f"rejects it: no verdict, {Reason(int(reason)).name}"
    does = "passes" if verdict == "PASS" else "rejects"
    return f"{does} it: {int(score) / 1000:.2f} of the threshold"


class DemoPlc:
    """A PLC that triggers a part every second over TCP and says what it gets."""

    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self._address, self._say = (host, port), say
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="plc", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(5)

    def _work(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(self._address, 5) as link:
            lines = link.makefile("r", encoding="ascii")
            link.sendall(b"E,1\n")
            seq = 0
            while not self._closing.wait(PART_SECONDS):
                link.sendall(b"S\n")
                ready = int(lines.readline().split(",")[1], 16) & 1
                if not ready:
                    continue
                seq = seq % 65535 + 1
                link.sendall(f"T,{seq},W{seq}\n".encode())
                answer = lines.readline().strip()
                if not answer:
                    return
                self._say(f"PLC: T,{seq},W{seq} -> {answer} ({what_it_does(answer)})")
                link.sendall(f"A,{seq}\n".encode())
