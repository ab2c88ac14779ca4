"""The outbox: results for other systems, sent at least once and in order.

A result is put into the outbox in the transaction that records its part, once for each sink and
uid. Results are marked as sent, a batch in one transaction, after the sink has taken them, so a
kill between the two sends a batch twice; the uids let the receiver drop what it has.
"""

from __future__ import annotations

import sqlite3
import urllib.request
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException
from typing import IO, Any

from anoco_edge.errors import AnocoError, SourceError

LONGEST_PAUSE = 60.0
BATCH = 25
Send = Callable[[str, str], None]
"""Sends a message with its uid; whatever it raises as an AnocoError means: try again later."""


class Outbox:
    """The messages for one sink. Times are seconds of any clock that runs forward."""

    def __init__(self, data: sqlite3.Connection, sink: str, send: Send) -> None:
        self._data, self._sink, self._send = data, sink, send
        self._failures = 0
        self._not_before = 0.0
        self.last_error = ""

    def waiting(self) -> int:
        """Return how many messages are not sent yet."""
        query = "SELECT count(*) FROM outbox WHERE sink = ? AND sent = 0"
        return int(self._data.execute(query, (self._sink,)).fetchone()[0])

    def drain(self, now: float) -> int:
        """Send a batch of what waits, the oldest first, until one fails; return how many were sent.

        After a failure nothing is sent for a second, then for two, four, up to a minute.
        """
        if now < self._not_before:
            return 0
        rows = self._data.execute(
            "SELECT id, uid, body FROM outbox WHERE sink = ? AND sent = 0 ORDER BY id LIMIT ?",
            (self._sink, BATCH),
        ).fetchall()
        taken: list[tuple[int]] = []
        failed: list[tuple[int]] = []
        try:
            for row, uid, body in rows:
                try:
                    self._send(uid, body)
                except AnocoError as error:
                    self.last_error = str(error)
                    self._not_before = now + min(2.0**self._failures, LONGEST_PAUSE)
                    self._failures += 1
                    failed.append((row,))
                    break
                taken.append((row,))
                self._failures, self.last_error = 0, ""
        finally:  # whatever a sender raises, what was taken before does not go out again
            self._mark(taken, failed)
        return len(taken)

    def _mark(self, taken: list[tuple[int]], failed: list[tuple[int]]) -> None:
        if not taken and not failed:
            return
        self._data.execute("BEGIN IMMEDIATE")
        with self._data:
            self._data.executemany("UPDATE outbox SET sent = 1 WHERE id = ?", taken)
            self._data.executemany("UPDATE outbox SET attempts = attempts + 1 WHERE id = ?", failed)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses to go elsewhere: a redirected POST would arrive as a GET without its body."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


def webhook(url: str, token: str = "", timeout: float = 5.0) -> Send:
    """Return a sender that posts JSON to an address, with the uid as Idempotency-Key."""
    opener = urllib.request.build_opener(_NoRedirect)

    def send(uid: str, body: str) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": uid}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(url, body.encode(), headers, method="POST")
        try:
            with opener.open(request, timeout=timeout) as answer:
                _: Any = answer.read(1)
        except (OSError, HTTPException, ValueError) as error:
            raise SourceError(
                f"{url} did not take {uid}: {error}", hint="it is tried again"
            ) from None

    return send
