"""API tokens: for programs, stored as hashes, each with a scope and an end."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.people.passwords import digest
from anoco_edge.station.people.roles import Scope, UnknownNameError, User, lower

PREFIX = "anoco"
DAY = 86400.0


@dataclass(frozen=True)
class TokenEntry:
    """A token as the list shows it; its secret is nowhere."""

    id: str
    name: str
    scope: Scope
    owner: str
    made: str
    expires: float | None
    used: str | None


class Tokens:
    """The tokens in a station.db; `clock` returns the time of day in seconds.

    A token acts with its scope, and never with more than the role that its owner has now.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock

    def add(self, name: str, scope: Scope, owner: str, days: int | None) -> tuple[str, str]:
        """Make a token and return its id and the token itself, which is shown this once."""
        id_, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        expires = None if days is None else self._clock() + days * DAY
        with self._database.write() as data:
            data.execute(
                "INSERT INTO token VALUES (?,?,?,?,?,?,?,NULL)",
                (id_, name, scope, digest(secret), owner, wall_time(), expires),
            )
        return id_, f"{PREFIX}_{id_}_{secret}"

    def find(self, token: str) -> User | None:
        """Return who acts with a token; None if it is not known or has expired."""
        prefix, _, rest = token.partition("_")
        id_, _, secret = rest.partition("_")
        row = self._database.row(
            "SELECT token.*, user.role FROM token JOIN user ON user.name = token.owner "
            "WHERE id = ?",
            (id_,),
        )
        if prefix != PREFIX or row is None:
            return None
        if not hmac.compare_digest(row["digest"], digest(secret)):
            return None
        if row["expires"] is not None and self._clock() >= row["expires"]:
            return None
        self._note_use(id_, row["used"])
        return User(f"{row['owner']}/{row['name']}", lower(row["scope"], row["role"]), "token")

    def all(self) -> list[TokenEntry]:
        """Return all tokens, the oldest first."""
        rows = self._database.rows(
            "SELECT id, name, scope, owner, made, expires, used FROM token ORDER BY made"
        )
        return [TokenEntry(**row) for row in rows]

    def remove(self, id_: str) -> None:
        """Make a token worthless."""
        with self._database.write() as data:
            done = data.execute("DELETE FROM token WHERE id = ?", (id_,))
        if not done.rowcount:
            raise UnknownNameError(f"there is no token {id_}", hint="look at the list of tokens")

    def _note_use(self, id_: str, before: str | None) -> None:
        """Note when a token was used, once an hour."""
        now = wall_time()
        if before is None or before[:13] != now[:13]:
            with self._database.write() as data:
                data.execute("UPDATE token SET used = ? WHERE id = ?", (now, id_))
