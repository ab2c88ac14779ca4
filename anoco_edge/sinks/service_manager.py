"""Telling systemd that a camera is being watched, by its own small protocol (sd_notify).

A unit of Type=notify with WatchdogSec is started again when no frame was judged for that long.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from anoco_edge.text.address import mask_addresses_in

_OFTEN = 4  # signs of life in one watchdog interval


class ServiceManager:
    """Who started this process and wants to hear of it; nobody, most of the time.

    >>> ServiceManager.from_environment({}).listens
    False
    """

    def __init__(self, address: str = "", watchdog_seconds: float = 0.0) -> None:
        self._address = address
        self._pause = watchdog_seconds / _OFTEN
        self._last = -self._pause

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ServiceManager:
        """As systemd says it: NOTIFY_SOCKET, WATCHDOG_USEC, and WATCHDOG_PID for whom they are."""
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
        return self._address != ""

    def ready(self, status: str) -> None:
        """Loaded and looking: what waits for this service may start."""
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def alive(self) -> None:
        """A frame was judged. Told a few times in a watchdog's interval, not every time."""
        now = time.monotonic()
        if self._pause and now - self._last >= self._pause:
            self._last = now
            self._send("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        """The run has ended and is being written down."""
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def _send(self, text: str) -> None:
        if not self.listens:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)  # a manager that hangs must not hold up the line
                channel.sendto(text.encode(), address)
        except OSError:
            pass  # it is gone or busy: it misses the sign, and acts on that by itself


def _one_line(text: str) -> str:
    return mask_addresses_in(" ".join(text.split()))
