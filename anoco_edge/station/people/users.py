"""The users of a station: their roles, passwords and PINs."""

from __future__ import annotations

from dataclasses import dataclass

from anoco_edge.errors import UsageError
from anoco_edge.line.store.database import wall_time
from anoco_edge.station.database import Database
from anoco_edge.station.people.passwords import check_password, check_pin, hash_secret, matches
from anoco_edge.station.people.roles import PersonRole, UnknownNameError

MOST_PIN_FAILURES = 5
LONGEST_NAME = 64


@dataclass(frozen=True)
class Account:
    """A user as others see it."""

    name: str
    role: PersonRole
    has_pin: bool
    pin_locked: bool
    made: str


class Users:
    """The users in a station.db.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     users = Users(Database(Path(folder)))
    ...     users.add("mia", "admin", "a long password")
    ...     print(users.knows("mia", "a long password"), users.knows("mia", "another one"))
    True False
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Account]:
        """Return all users by name."""
        rows = self._database.rows("SELECT * FROM user ORDER BY name")
        return [
            Account(
                row["name"],
                row["role"],
                row["pin"] is not None,
                row["pin_failures"] >= MOST_PIN_FAILURES,
                row["made"],
            )
            for row in rows
        ]

    def account(self, name: str) -> Account:
        """Return one user, or raise a UsageError."""
        for account in self.all():
            if account.name == name:
                return account
        raise UnknownNameError(f"there is no user {name}", hint="look at the list of users")

    @property
    def none(self) -> bool:
        """Whether the station was not set up yet."""
        return self._database.row("SELECT 1 FROM user LIMIT 1") is None

    def add(self, name: str, role: PersonRole, password: str) -> None:
        """Add a user; a name that is taken or no name is a UsageError."""
        if not (name.isprintable() and name == name.strip() and 0 < len(name) <= LONGEST_NAME):
            raise UsageError(
                "that is not a name", hint=f"use 1 to {LONGEST_NAME} letters without spaces around"
            )
        check_password(password)
        stored = hash_secret(password)
        with self._database.write() as data:
            if data.execute("SELECT 1 FROM user WHERE name = ?", (name,)).fetchone():
                raise UsageError(f"there is a user {name} already", hint="choose another name")
            data.execute(
                "INSERT INTO user (name, role, password, made) VALUES (?,?,?,?)",
                (name, role, stored, wall_time()),
            )

    def remove(self, name: str) -> None:
        """Remove a user with all sessions and tokens; the last admin stays."""
        self.account(name)
        with self._database.write() as data:
            self._keep_an_admin(name)
            data.execute("DELETE FROM user WHERE name = ?", (name,))

    def set_role(self, name: str, role: PersonRole) -> None:
        """Give a user another role; the last admin stays one."""
        self.account(name)
        with self._database.write() as data:
            if role != "admin":
                self._keep_an_admin(name)
            data.execute("UPDATE user SET role = ? WHERE name = ?", (role, name))

    def set_password(self, name: str, password: str) -> None:
        """Give a user another password, which ends all sessions and unlocks the PIN."""
        self.account(name)
        check_password(password)
        stored = hash_secret(password)
        with self._database.write() as data:
            data.execute(
                "UPDATE user SET password = ?, pin_failures = 0 WHERE name = ?", (stored, name)
            )
            data.execute("DELETE FROM session WHERE user = ?", (name,))

    def set_pin(self, name: str, pin: str | None) -> None:
        """Give an operator a PIN, or take it away."""
        account = self.account(name)
        if pin is not None:
            if account.role not in ("viewer", "operator"):
                raise UsageError(
                    f"{name} is {account.role}", hint="a PIN is for viewers and operators"
                )
            check_pin(pin)
        stored = None if pin is None else hash_secret(pin)
        with self._database.write() as data:
            data.execute("UPDATE user SET pin = ?, pin_failures = 0 WHERE name = ?", (stored, name))

    def knows(self, name: str, password: str) -> bool:
        """Whether this is the password of the user; an unknown user takes as long to refuse."""
        row = self._database.row("SELECT password FROM user WHERE name = ?", (name,))
        right = matches(password, row["password"] if row else None)
        if not (right and row):
            return False
        with self._database.write() as data:
            data.execute("UPDATE user SET pin_failures = 0 WHERE name = ?", (name,))
        return True

    def knows_pin(self, name: str, pin: str) -> bool:
        """Whether this is the PIN of the user.

        After five wrong ones in a row no PIN is right until the password was given, or set again.
        Whoever is neither viewer nor operator any more has none.
        """
        row = self._database.row("SELECT pin, pin_failures, role FROM user WHERE name = ?", (name,))
        stored = row["pin"] if row and row["role"] in ("viewer", "operator") else None
        # Counted before it is compared, so that tries at the same time are counted, too.
        with self._database.write() as data:
            found = data.execute(
                "UPDATE user SET pin_failures = pin_failures + 1 WHERE name = ? "
                "AND pin_failures < ? RETURNING 1",
                (name, MOST_PIN_FAILURES),
            ).fetchall()
        right = matches(pin, stored if found else None)
        if not (right and stored and found):
            return False
        with self._database.write() as data:
            data.execute("UPDATE user SET pin_failures = 0 WHERE name = ?", (name,))
        return True

    def _keep_an_admin(self, name: str) -> None:
        with self._database.write() as data:
            others = data.execute(
                "SELECT count(*) FROM user WHERE role = 'admin' AND name <> ?", (name,)
            ).fetchone()[0]
        if not others:
            raise UsageError(f"{name} is the last admin", hint="make another user admin first")
