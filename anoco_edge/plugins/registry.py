"""One table for everything of a kind: engines, scorers, sources or sinks.

A package outside this one adds an entry through an entry point of the table's group. The entry
point names a spec, or a function without arguments that returns one:

    [project.entry-points."anoco_edge.engines"]
    my-engine = "my_package:SPEC"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from anoco_edge.errors import EnvironmentMissingError, UsageError


@dataclass(frozen=True)
class Spec:
    """What a table knows of one entry before its module is imported.

    `module` is imported when the entry is used and not before. `extra` is the extra of anoco-edge
    that installs what the entry needs, empty if there is none; `needs` says in a few words what
    that is.
    """

    name: str
    module: str
    extra: str = ""
    needs: str = ""

    def load(self) -> Any:
        """Import the module of this entry.

        >>> Spec("json", "json").load().__name__
        'json'
        """
        return import_module(self.module)


SpecT = TypeVar("SpecT", bound=Spec)


class Registry(Generic[SpecT]):
    """The entries of one kind: those of this package in their order, then those of others.

    >>> table = Registry("color", "anoco_edge.no_such_group", [Spec("red", "json")], Spec)
    >>> table.names(), table.get("red").module
    (('red',), 'json')
    >>> table.get("blue")
    Traceback (most recent call last):
        ...
    anoco_edge.errors.UsageError: unknown color 'blue'; use one of: red
    """

    def __init__(self, kind: str, group: str, own: Sequence[SpecT], spec_type: type[SpecT]) -> None:
        self.kind = kind
        self.group = group
        self._own = tuple(own)
        self._type = spec_type

    def __iter__(self) -> Iterator[SpecT]:
        return iter(self._entries.values())

    def names(self) -> tuple[str, ...]:
        """The names of all entries that can be asked for."""
        return tuple(self._entries)

    def get(self, name: str) -> SpecT:
        """Find the entry of this name; an unknown name is a UsageError that lists the known."""
        if name in self._entries:
            return self._entries[name]
        if name in self.broken:
            raise EnvironmentMissingError(
                f"{self.kind} {name!r} comes from a package that cannot be used: "
                f"{self.broken[name]}",
                hint="update or remove that package",
            )
        raise UsageError(
            f"unknown {self.kind} {name!r}", hint=f"use one of: {', '.join(self.names())}"
        )

    @property
    def broken(self) -> dict[str, str]:
        """Entries of other packages that cannot be used, each with the reason."""
        return self._found[1]

    @property
    def _entries(self) -> dict[str, SpecT]:
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[dict[str, SpecT], dict[str, str]]:
        """All entries, and what is wrong with those that cannot be used."""
        entries = {spec.name: spec for spec in self._own}
        broken: dict[str, str] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            if point.name in entries:
                broken[point.name] = f"the name is taken, so {point.value} is left out"
                continue
            try:
                entries[point.name] = self._load(point)
            except Exception as error:  # noqa: BLE001 - another package must not stop ours
                broken[point.name] = f"{point.value}: {error}"
        return entries, broken

    def _load(self, point: EntryPoint) -> SpecT:
        value = point.load()
        spec = value if isinstance(value, Spec) else value()
        if not isinstance(spec, self._type) or spec.name != point.name:
            raise TypeError(f"it is not a {self._type.__name__} named {point.name!r}")
        return spec
