"""Who may do what: users and the order of their roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anoco_edge.errors import UsageError

Role = Literal["metrics", "viewer", "operator", "engineer", "admin"]
PersonRole = Literal["viewer", "operator", "engineer", "admin"]
Scope = Literal["metrics", "viewer", "operator", "engineer"]
Via = Literal["password", "pin", "token", "setup", "console", "plc", "rule"]
RANKS: dict[str, int] = {
    role: rank for rank, role in enumerate(("metrics", "viewer", "operator", "engineer", "admin"))
}


class UnknownNameError(UsageError):
    """A name or an id that stands for nothing."""


@dataclass(frozen=True)
class User:
    """Who makes a request: a name, a role, and how it was proved.

    >>> User("mia", "engineer", "password").may("operator")
    True
    """

    name: str
    role: Role
    via: Via

    def may(self, role: Role) -> bool:
        """Whether this user may do what needs a role."""
        return RANKS[self.role] >= RANKS[role]


def lower(one: Role, other: Role) -> Role:
    """Return the role that may do less.

    >>> lower("admin", "viewer")
    'viewer'
    """
    return min(one, other, key=RANKS.__getitem__)
