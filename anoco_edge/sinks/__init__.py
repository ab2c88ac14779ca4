"""Sinks receive the rows of a run; they are chosen by name.

`SINKS` is the table of sinks that a person can ask for. Another package adds one by an entry point:

    [project.entry-points."anoco_edge.sinks"]
    my-sink = "my_package:SPEC"

where `SPEC = SinkSpec("my-sink", "my_package.sink", target="ADDRESS")` names a module with a
function `open_sink(target: str, run: RunInfo) -> Sink`. `Sink` and `RunInfo` are in
`anoco_edge.results`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anoco_edge.errors import AnocoError, EnvironmentMissingError
from anoco_edge.plugins import Registry, Spec

if TYPE_CHECKING:
    from anoco_edge.results.sink import RunInfo, Sink
    from anoco_edge.sinks.guarded import GuardedSink

__all__ = ["LIVE_KEEP", "OWN_SINKS", "SINKS", "SinkRequest", "SinkSpec"]


@dataclass(frozen=True)
class SinkSpec(Spec):
    """A sink in the table; `target` says in a word what it writes to, empty where it has none."""

    target: str = ""

    @property
    def usage(self) -> str:
        """How the sink is asked for.

        >>> SinkSpec("json-lines", "json", target="FILE").usage
        'json-lines=FILE'
        """
        return f"{self.name}={self.target}" if self.target else self.name


OWN_SINKS = (
    SinkSpec("folder", "anoco_edge.sinks.folder", target="DIR"),
    SinkSpec("json-lines", "anoco_edge.sinks.json_lines", target="FILE"),
)
SINKS = Registry("sink", "anoco_edge.sinks", OWN_SINKS, SinkSpec)

LIVE_KEEP = 1000  # overlays of a live source that a folder keeps unless the user says how many


@dataclass(frozen=True)
class SinkRequest:
    """A sink that a person asked for as NAME or NAME=TARGET."""

    spec: SinkSpec
    target: str

    @staticmethod
    def parse(text: str) -> SinkRequest:
        """Read NAME=TARGET; a name that is not in the table is a UsageError that lists those known.

        >>> SinkRequest.parse("json-lines=a=b.jsonl").target
        'a=b.jsonl'
        """
        name, _, target = text.partition("=")
        return SinkRequest(SINKS.get(name), target)

    def open(self, run: RunInfo, report: Callable[[str], None]) -> GuardedSink:
        """Open the sink for a run; `report` hears of it when it fails later."""
        from anoco_edge.sinks.guarded import GuardedSink

        module = self.spec.load()
        try:
            sink: Sink = module.open_sink(self.target, run)
        except AnocoError:
            raise
        except Exception as error:  # the sink may come from another package
            raise EnvironmentMissingError(
                f"the sink {self.spec.name!r} cannot be opened: {type(error).__name__}: {error}",
                hint=f"check what stands after {self.spec.name}=" if self.target else "",
            ) from error
        return GuardedSink(self.spec.name, sink, report)
