"""The station of the soak: a process with the real judge and a camera that can be unplugged.

    python -m tests.soak.station STATION.TOML

Each line of standard input is a command for the camera: off, on, ignore (a request), lose (a frame
on its way), twice (two frames for a request), late (a frame after its window). The camera writes
the counter and the time of every exposure to camera.log. The end of the input stops the station.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path

from anoco_edge.line import server as line_server
from anoco_edge.line.cameras.actor import PROGRESS_SECONDS, CameraOutlet
from anoco_edge.line.cameras.simulated import picture_loader
from anoco_edge.line.config.station_config import CameraTable, read_config
from anoco_edge.line.core.events import CameraDown, CameraProgress, CameraUp
from anoco_edge.line.server import LineServer

EXPOSURES = "camera.log"
LATE_SECONDS = 0.4


class UnpluggableCamera:
    """Answers each request with the next picture of a folder, unless a fault is due."""

    def __init__(self, table: CameraTable, base: Path, outlet: CameraOutlet) -> None:
        self._name, self._outlet = table.name, outlet
        self._load = picture_loader(table.source, base)
        self._log = (base / EXPOSURES).open("w")
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._counter = 0
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> None:
        self._orders.put("take")

    def command(self, word: str) -> None:
        self._orders.put(word)

    def close(self) -> None:
        self._orders.put("close")
        self._thread.join(5)
        self._log.close()

    def _work(self) -> None:
        self._pictures = self._load()
        post, plugged = self._outlet.post, True
        post(CameraUp(self._name))
        while True:
            try:
                order = self._orders.get(timeout=PROGRESS_SECONDS)
            except queue.Empty:
                if plugged:
                    post(CameraProgress(self._name))
                continue
            if order == "close":
                return
            if order == "off":
                plugged = False
                post(CameraDown(self._name, "unplugged"))
            elif order == "on":
                plugged = True
                self._counter += 1000  # a counter that starts elsewhere
                post(CameraUp(self._name))
            elif order != "take":
                self._faults.append(order)
            elif plugged:
                self._expose(self._faults.pop() if self._faults else "")

    def _expose(self, fault: str) -> None:
        if fault == "ignore":
            return
        for _ in range(2 if fault == "twice" else 1):
            self._counter += 1
            exposed = time.monotonic_ns()
            self._log.write(f"{self._counter} {exposed}\n")
            if fault == "lose":
                return
            if fault == "late":
                time.sleep(LATE_SECONDS)
            pixels = self._pictures[(self._counter - 1) % len(self._pictures)]
            self._outlet.deliver(pixels, self._counter, exposed, exposed)


def main() -> None:
    """Run the station until standard input ends."""
    path = Path(sys.argv[1])
    cameras: list[UnpluggableCamera] = []

    def make(table: CameraTable, base: Path, _: object, outlet: CameraOutlet) -> UnpluggableCamera:
        cameras.append(UnpluggableCamera(table, base, outlet))
        return cameras[0]

    line_server.make_camera = make
    say = (path.parent / "station.log").open("w", buffering=1)
    server = LineServer(read_config(path), path.parent, say=lambda text: print(text, file=say))
    server.start()
    print("started", flush=True)
    for line in sys.stdin:
        cameras[0].command(line.strip())
    server.stop()
    if server.failure is not None:
        raise server.failure


if __name__ == "__main__":
    main()
