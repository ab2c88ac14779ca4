"""One table for everything of a kind: engines, scorers, sources or sinks.

A package outside this one adds an entry through an entry point of the table's group. The entry
point names a spec, or a function without arguments that returns one:

    [project.entry-points."anoco_edge.engines"]
    my-engine = "my_package:SPEC"

A spec is a few plain values. The module that does the work is imported when the entry is used, so
that listing a table loads no library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from anoco_edge.errors import AnocoError, EnvironmentMissingError, UsageError, missing


class Choice(NamedTuple):
    """What was chosen out of a table, and the reason, for people.

    >>> name, reason = Choice("onnxruntime", "asked for")
    >>> name, reason
    ('onnxruntime', 'asked for')
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Spec:
    """The description of one entry, which a table knows before the entry's module is imported.

    `module` is imported when the entry is used and not before. `packages` are the import names of
    the packages that it needs, and `extra` is the extra of anoco-edge that installs them, empty if
    there is none; `needs` says in a few words what the entry needs beside the base installation.
    Where the choice is left to `auto`, entries with `auto` set are asked in the order of `rank`,
    the lowest first. `auto_reason` is the reason that is given when the entry is chosen.
    """

    name: str
    module: str
    extra: str = ""
    needs: str = ""
    packages: tuple[str, ...] = ()
    rank: int = 100
    auto: bool = False
    auto_reason: str = "it runs here"

    purpose: ClassVar[str] = "to use it"
    """What a missing package is needed for, as part of a sentence."""

    def load(self) -> Any:
        """Import the module of this entry; an error says which package is missing.

        >>> Spec("json", "json").load().__name__
        'json'
        """
        try:
            return import_module(self.module)
        except ImportError as error:
            if error.name in self.packages:
                raise self.missing_error(str(error.name)) from None
            raise EnvironmentMissingError(
                f"{self.name} cannot be loaded: {error}",
                hint="update or install again the package that brings it",
            ) from None

    def missing_package(self) -> str:
        """Find the first needed package that is not installed, without importing any.

        >>> Spec("x", "json", packages=("json", "no_such_package")).missing_package()
        'no_such_package'
        """
        return next((name for name in self.packages if find_spec(name) is None), "")

    def missing_error(self, package: str) -> EnvironmentMissingError:
        """Make the error for a package that is not installed.

        >>> Spec("x", "json").missing_error("fastnet").hint
        'install it with: pip install fastnet'
        """
        if self.extra:
            return missing(package, self.extra, self.purpose)
        return EnvironmentMissingError(
            f"{package} is needed {self.purpose} and is not installed",
            hint=f"install it with: pip install {package}",
        )

    def why_not(self, *arguments: object) -> str:
        """Say why this entry cannot be used here; empty when nothing is known against it.

        The module may know more than which packages are installed: its function `why_not`, if it
        has one, is asked with these arguments.

        >>> Spec("x", "json", packages=("no_such_package",)).why_not()[:31]
        'no_such_package is needed to us'
        """
        if package := self.missing_package():
            return str(self.missing_error(package))
        try:
            known = self.function("why_not")
            return "" if known is None else str(known(*arguments))
        except AnocoError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - another package must not stop ours
            return f"{self.name} fails when it is asked: {type(error).__name__}: {error}"

    def function(self, name: str) -> Callable[..., Any] | None:
        """Look up an optional function of the module; None if the module has none."""
        found: Callable[..., Any] | None = getattr(self.load(), name, None)
        return found


@dataclass(frozen=True)
class StageSpec(Spec):
    """The description of a stage of the pipeline that `auto` can choose: an engine or a scorer.

    `gpu` says that it runs on an NVIDIA GPU. `optional` stages need not be there for a machine to
    be complete. `native` is the name under which the native library has the same stage; it is empty
    if the library has none.
    """

    gpu: bool = False
    optional: bool = True
    native: str = ""


SpecT = TypeVar("SpecT", bound=Spec)
StageT = TypeVar("StageT", bound=StageSpec)


class Registry(Generic[SpecT]):
    """The entries of one kind: those of this package in their order, then those of others.

    >>> table = Registry("color", "anoco_edge.no_such_group", [Spec("red", "json")], Spec)
    >>> table.names(), table.get("red").module, "blue" in table
    (('red',), 'json', False)
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

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry of this name."""
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """The names of all entries that can be asked for."""
        return tuple(self._entries)

    def by_rank(self) -> list[SpecT]:
        """All entries, those of the lowest rank first."""
        return sorted(self, key=lambda spec: spec.rank)

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
        known = ", ".join(self.names())
        if any(spec.auto for spec in self):
            raise UsageError(f"unknown {self.kind} {name!r}", hint=f"use auto or one of {known}")
        raise UsageError(f"unknown {self.kind} {name!r}", hint=f"use one of: {known}")

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
                broken[point.name] = f"the name is taken, so {_origin(point)} is left out"
                continue
            try:
                entries[point.name] = self._load(point)
            except Exception as error:  # noqa: BLE001 - another package must not stop ours
                broken[point.name] = f"{_origin(point)}: {error}"
        return entries, broken

    def _load(self, point: EntryPoint) -> SpecT:
        value = point.load()
        spec = value if isinstance(value, Spec) else value()
        if not isinstance(spec, self._type) or spec.name != point.name:
            raise TypeError(f"it is not a {self._type.__name__} named {point.name!r}")
        return spec


class StageRegistry(Registry[StageT]):
    """The engines or the scorers, one of which a pipeline runs.

    >>> own = [StageSpec("fast", "json"), StageSpec("slow", "json", auto=True, native="cpu")]
    >>> table = StageRegistry("filter", "anoco_edge.no_such_group", own, StageSpec)
    >>> table.choose("auto", lambda spec: spec.auto_reason)
    Choice(name='slow', reason='it runs here')
    >>> [spec.name for spec in table.native()]
    ['slow']
    """

    def choose(self, name: str, reason_for_auto: Callable[[StageT], str]) -> Choice | None:
        """Choose the stage of this name, which is never replaced, or leave the choice to `auto`.

        `auto` takes the first stage by rank that has a reason; None if no stage has one.
        """
        if name != "auto":
            return Choice(self.get(name).name, "asked for")
        for spec in self.by_rank():
            if spec.auto and (reason := reason_for_auto(spec)):
                return Choice(spec.name, reason)
        return None

    def native(self) -> tuple[StageT, ...]:
        """The stages that the native library has too."""
        return tuple(spec for spec in self if spec.native)


def _origin(point: EntryPoint) -> str:
    """Name the object that an entry point stands for, and the package that it comes from."""
    package = point.dist.name if point.dist is not None else ""
    return f"{point.value} of {package}" if package else point.value
