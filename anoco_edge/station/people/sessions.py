"""Sessions of browsers, and the browsers on which a PIN is enough."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.people.passwords import digest
from anoco_edge.station.people.roles import User, Via

IDLE_SECONDS = 12 * 3600.0  # a shift and the way home
LONGEST_SECONDS = 7 * 86400.0
_STEP_SECONDS = 60.0
_CLOCK_SLACK = 300.0  # a clock may be set right by this much


def csrf_token(session: str) -> str:
    """Return what a page must send along with each change; it follows from the cookie, which
    other sites can neither read nor choose.

    >>> len(csrf_token("abc")), csrf_token("abc") == csrf_token("abd")
    (64, False)
    """
    return hmac.new(session.encode(), b"anoco csrf", hashlib.sha256).hexdigest()


class Sessions:
    """The sessions in a station.db; `clock` returns the time of day in seconds.

    A session whose times lie in the future, because the clock was set back, is over.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock

    def open(self, name: str, via: Via) -> str:
        """Begin a session and return its secret, which only the cookie holds."""
        secret, now = secrets.token_urlsafe(32), self._clock()
        with self._database.write() as data:
            data.execute("DELETE FROM session WHERE opened < ?", (now - LONGEST_SECONDS,))
            data.execute(
                "INSERT INTO session VALUES (?,?,?,?,?)", (digest(secret), name, via, now, now)
            )
        return secret

    def find(self, secret: str, *, active: bool = True) -> User | None:
        """Return whose session this is, with the role of now; None if it is over."""
        row = self._database.row(
            "SELECT session.*, user.role FROM session JOIN user ON user.name = session.user "
            "WHERE digest = ?",
            (digest(secret),),
        )
        if row is None:
            return None
        now = self._clock()
        idle, age = now - row["seen"], now - row["opened"]
        if not (-_CLOCK_SLACK <= idle <= IDLE_SECONDS and age <= LONGEST_SECONDS):
            self.close(secret)
            return None
        if active and idle > _STEP_SECONDS:
            with self._database.write() as data:
                data.execute("UPDATE session SET seen = ? WHERE digest = ?", (now, digest(secret)))
        return User(row["user"], row["role"], row["via"])

    def close(self, secret: str) -> None:
        """End a session."""
        with self._database.write() as data:
            data.execute("DELETE FROM session WHERE digest = ?", (digest(secret),))

    def close_all(self, name: str) -> None:
        """End all sessions of a user."""
        with self._database.write() as data:
            data.execute("DELETE FROM session WHERE user = ?", (name,))

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return int(self._database.rows("SELECT count(*) FROM session")[0][0])

    # ---- browsers

    def enroll(self, label: str, by: str) -> str:
        """Allow PINs on a browser and return the secret that its cookie holds."""
        secret = secrets.token_urlsafe(32)
        with self._database.write() as data:
            data.execute(
                "INSERT INTO browser VALUES (?,?,?,?)", (digest(secret), label, wall_time(), by)
            )
        return secret

    def is_enrolled(self, secret: str) -> bool:
        """Whether PINs are allowed on the browser with this cookie."""
        found = self._database.row("SELECT 1 FROM browser WHERE digest = ?", (digest(secret),))
        return found is not None

    def browsers(self) -> list[tuple[str, str, str, str]]:
        """Return id, label, time and name of who enrolled it, of each browser."""
        rows = self._database.rows("SELECT * FROM browser ORDER BY made")
        return [(row["digest"][:16], row["label"], row["made"], row["made_by"]) for row in rows]

    def forget_browser(self, id_: str) -> bool:
        """Allow no PINs on a browser any more; False if there is none with this id."""
        with self._database.write() as data:
            done = data.execute("DELETE FROM browser WHERE substr(digest, 1, 16) = ?", (id_,))
        return done.rowcount > 0
