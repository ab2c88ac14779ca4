"""Tells systemd that frames are being inspected, by systemd's own small protocol (sd_notify).

systemd restarts a unit of Type=notify with WatchdogSec when no frame was inspected for that long.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from anoco_edge.images.frame import Frame
from anoco_edge.results.overlay import Overlay
from anoco_edge.results.rows import Row
from anoco_edge.results.summary import RunSummary
from anoco_edge.text.address import mask_addresses_in

_SIGNS = 4  # signs of life in one interval of the watchdog


class ServiceManager:
    """The sink that tells the service manager that started this process, if there is one.

    >>> ServiceManager.from_environment({}).listens
    False
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self._address = address
        self._pause = watchdog_seconds / _SIGNS
        self._last = -self._pause

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ServiceManager:
        """Read what systemd sets: NOTIFY_SOCKET, WATCHDOG_USEC, and WATCHDOG_PID, the process they
        are meant for."""
        given = os.environ if environment is None else environment
        address = given.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls()
        microseconds = given.get("WATCHDOG_USEC", "")
        ours = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(microseconds) / 1e6 if microseconds.isdecimal() and ours else 0.0
        return cls(address, seconds)

    @property
    def listens(self) -> bool:
        """Whether a service manager wants to hear from this process."""
        return self._address != ""

    def ready(self, status: str) -> None:
        """Say that the service has started, so that units that wait for it may start."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def write(self, row: Row, frame: Frame, overlay: Overlay | None) -> None:
        """Give a sign of life for a frame that was inspected; failed frames do not count."""
        if row.verdict is not None:
            self.alive()

    def finish(self, summary: RunSummary) -> None:
        """Say that the run has ended, and why."""
        self.stopping(str(summary.lost or f"{summary.pictures} frames, stopped"))

    def alive(self) -> None:
        """Give a sign of life, a few times in an interval of the watchdog and not every time."""
        now = time.monotonic()
        if self._pause and now - self._last >= self._pause:
            self._last = now
            self._send("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """Say that the run has ended and its results are being written."""
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def _send(self, text: str) -> None:
        if not self.listens:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)  # a manager that hangs must not stop the line
                channel.sendto(text.encode(), address)
        except OSError:
            pass  # a manager that is gone or busy misses the sign and acts on that itself


def _one_line(text: str) -> str:
    return mask_addresses_in(" ".join(text.split()))
