"""Defines what a campaign is given and what it yields, and finds the campaigns."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import numpy as np

import tests.attack


@dataclass(frozen=True)
class Plan:
    """The settings of one run of one campaign."""

    folder: Path  # empty, for this campaign alone
    seed: int
    short: bool  # the version for `make test`, which takes seconds and not minutes

    def rng(self) -> np.random.Generator:
        """Return the source of every random choice, so that a seed repeats a run."""
        return np.random.default_rng(self.seed)

    def choose(self, full: int, short: int) -> int:
        """Return how many cases to try."""
        return short if self.short else full


@dataclass(frozen=True)
class Case:
    """One thing that was tried; `broken` says what went wrong, and is empty if it held.

    `not_executed` says why it could not be tried here.
    """

    name: str
    broken: str = ""
    not_executed: str = ""


class Campaign(Protocol):
    """The interface of a campaign, which is a module of this package."""

    __doc__: str | None
    cases: Callable[[Plan], Iterator[Case]]


def campaigns() -> dict[str, Campaign]:
    """Return every campaign by its name, in alphabetical order."""
    found = {}
    for info in pkgutil.iter_modules(tests.attack.__path__):
        if info.name != "__main__":
            module = importlib.import_module(f"tests.attack.{info.name}")
            if hasattr(module, "cases"):
                found[info.name] = cast(Campaign, module)
    return found


@dataclass
class Tally:
    """The row of a campaign in the table."""

    tried: int = 0
    broken: int = 0
    first: str = ""
    not_executed: list[str] = field(default_factory=list)

    def count(self, case: Case) -> None:
        """Count one more case."""
        if case.not_executed:
            self.not_executed.append(f"{case.name}: {case.not_executed}")
            return
        self.tried += 1
        if case.broken:
            self.broken += 1
            self.first = self.first or f"{case.name}: {case.broken}"

    @property
    def held(self) -> int:
        return self.tried - self.broken


def run(name: str, seed: int, short: bool) -> tuple[str, Tally, float]:
    """Run a campaign in a folder of its own; return its name, its tally and the seconds it took."""
    started, tally = time.monotonic(), Tally()
    with tempfile.TemporaryDirectory(prefix=f"attack-{name}-") as folder:
        for case in campaigns()[name].cases(Plan(Path(folder), seed, short)):
            tally.count(case)
            if case.broken:
                print(f"BROKEN {name} / {case.name}: {case.broken}", file=sys.stderr)
    return name, tally, time.monotonic() - started
