"""Options that several commands share as a group: declared once, expanded where a command is made.

A group is a dataclass whose fields are options. A command takes it as one keyword parameter:

    def enroll(bundle: BundleArgument, *, stages: StageOptions) -> None: ...

and `expand_groups` turns that parameter into one option for each field, for Typer to see.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from anoco_edge.cli.options import (
    ArenaOption,
    BlockingSyncOption,
    CpuPrecisionOption,
    DeviceOption,
    EngineOption,
    RuntimeOption,
    ScorerOption,
    ThreadsOption,
)

if TYPE_CHECKING:
    from anoco_edge.engines import EngineSettings


@dataclass(frozen=True)
class StageOptions:
    """What computes features and energies: the options of commands that teach."""

    engine: EngineOption = "auto"
    device: DeviceOption = "CPU"
    scorer: ScorerOption = "auto"
    cpu_precision: CpuPrecisionOption = "auto"

    def settings(self) -> EngineSettings:
        """Return how the engine is to run."""
        from anoco_edge.engines import EngineSettings

        return EngineSettings(device=self.device, cpu_precision=self.cpu_precision)


@dataclass(frozen=True)
class RunOptions(StageOptions):
    """What inspects frames, and how: the options of commands that inspect."""

    runtime: RuntimeOption = "python"
    threads: ThreadsOption = 0
    arena: ArenaOption = True
    blocking_sync: BlockingSyncOption = False

    def settings(self) -> EngineSettings:
        """Return how the engine is to run."""
        from anoco_edge.engines import EngineSettings

        return EngineSettings(
            self.threads, self.arena, self.device, self.cpu_precision, self.blocking_sync
        )


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option for each field of its groups, in their place.

    >>> def inspect_frames(*, limit: int = 0, stages: StageOptions) -> None:
    ...     print(limit, stages.engine, stages.scorer)
    >>> expanded = expand_groups(inspect_frames)
    >>> list(inspect.signature(expanded).parameters)
    ['limit', 'engine', 'device', 'scorer', 'cpu_precision']
    >>> expanded(limit=3, engine="openvino", device="CPU", scorer="auto", cpu_precision="auto")
    3 openvino auto
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {p.name: p.annotation for p in signature.parameters.values() if _is_group(p)}
    if not groups:
        return command
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name in groups:
            parameters += _options_of(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**options: Any) -> None:
        for name, group in groups.items():
            given = {field.name: options.pop(field.name) for field in fields(group)}
            options[name] = group(**given)
        command(**options)

    # Not functools.wraps: Typer would then read the types of the command itself.
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _is_group(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
