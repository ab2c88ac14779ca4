"""Defines options that several commands share, and reads their values.

Help texts name what a table holds as {engines}, {scorers}, {devices} or {native}; `fill_in_help`
completes them when a help page is shown, because reading the tables takes a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from anoco_edge.errors import UsageError

BundleArgument = Annotated[Path, typer.Argument(help="Bundle directory (NAME.anoco).")]
OptionalBundleArgument = Annotated[
    Path | None, typer.Argument(help="Bundle; default: the only one in this directory.")
]
PicturesOption = Annotated[
    list[str] | None,
    typer.Option(help="Pictures or folders (repeatable); default: the product's references."),
]
_SMALLEST = 1e-30  # a score divided by it is still a number in 32 bits

ProductOption = Annotated[
    str | None, typer.Option("--product", "-p", help="Product; default: the only one there is.")
]
EngineOption = Annotated[
    str,
    typer.Option(
        help="What runs the backbone: auto, {engines}.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Where the engine runs, with {devices}.")]
CpuPrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16", "int8"],
    typer.Option(
        help="How the processor computes the backbone. auto follows the product; a new one takes "
        "bf16 if openvino is installed, the processor has it and the self-test passes."
    ),
]
ScorerOption = Annotated[str, typer.Option(help="What scores: auto, {scorers}.")]
RuntimeOption = Annotated[
    Literal["python", "native"],
    typer.Option(help="What inspects: Python, or libanoco_edge (with {native})."),
]
ThreadsOption = Annotated[int, typer.Option(min=0, help="Threads; 0 uses every core.")]
ArenaOption = Annotated[
    bool, typer.Option("--arena/--no-arena", help="Keep memory between frames (faster, larger).")
]
BlockingSyncOption = Annotated[
    bool,
    typer.Option(
        "--blocking-sync", help="Threads that wait for an NVIDIA GPU sleep in place of spinning."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def engine_names() -> str:
    """List the engines for a help text.

    >>> "openvino" in engine_names()
    True
    """
    from anoco_edge.engines import ENGINES

    return ", ".join(ENGINES.names())


def scorer_names() -> str:
    """List the scorers for a help text, the fastest first.

    >>> scorer_names().split(", ")[:2]
    ['cuda', 'native']
    """
    from anoco_edge.scoring import SCORERS

    return ", ".join(spec.name for spec in SCORERS.by_rank())


def device_names() -> str:
    """List the devices of each engine that has some, for a help text.

    >>> device_names().startswith("openvino: CPU, GPU")
    True
    """
    from anoco_edge.engines import ENGINES

    return "; ".join(f"{spec.name}: {', '.join(spec.devices)}" for spec in ENGINES if spec.devices)


def native_names() -> str:
    """List the engines and scorers that the native library has, for a help text.

    >>> native_names()
    'openvino, tensorrt; native, cuda'
    """
    from anoco_edge.engines import ENGINES
    from anoco_edge.scoring import SCORERS

    tables = (ENGINES.native(), SCORERS.native())
    return "; ".join(", ".join(spec.name for spec in table) for table in tables)


_TABLES: dict[str, Callable[[], str]] = {
    "{engines}": engine_names,
    "{scorers}": scorer_names,
    "{devices}": device_names,
    "{native}": native_names,
}


def fill_in_help(command: Any) -> None:
    """Complete the help texts of a command's options with the names that the tables hold."""
    for option in command.params:
        for mark, names in _TABLES.items():
            if mark in (getattr(option, "help", None) or ""):
                option.help = option.help.replace(mark, names())


def example(text: str) -> str:
    """Return the last line of a command's help.

    >>> example("anoco-edge doctor")
    'Example: anoco-edge doctor'
    """
    return f"Example: {text}"


def check_product_name(name: str | None) -> None:
    """Refuse what cannot be the name of a product, before any work is done.

    >>> check_product_name("M8 washer")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: 'M8 washer' is not a product name; use letters, digits, ...
    """
    from pydantic import TypeAdapter, ValidationError

    from anoco_edge.bundle.schema import ProductName

    try:
        TypeAdapter(ProductName | None).validate_python(name)
    except ValidationError:
        raise UsageError(
            f"{name!r} is not a product name", hint="use letters, digits, '-', '_' and '.'"
        ) from None


def check_number(value: object, option: str) -> None:
    """Refuse numbers that no option means and that libraries fail on: nan, and beyond 32 bits.

    >>> check_number(5e-324, "--threshold")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: --threshold is 5e-324; give a number between 1e-30 and 1e+30...
    """
    if isinstance(value, float) and value != 0 and not _SMALLEST <= abs(value) <= 1 / _SMALLEST:
        hint = f"give a number between {_SMALLEST:g} and {1 / _SMALLEST:g}, or 0"
        raise UsageError(f"{option} is {value}", hint=hint)
    wide = option in ("--seed", "--tta-seed", "--id")
    largest = 2**63 - 1 if wide else 2**31 - 1
    if isinstance(value, int) and abs(value) > largest:
        raise UsageError(f"{option} is {value}", hint=f"give at most {largest}")


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Read a size, `384` or `640x896` (width x height).

    >>> parse_size("640x896")
    (640, 896)
    """
    if text is None:
        return None
    try:
        sides = [int(part) for part in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) <= 0:
        raise UsageError(f"{text!r} is not a size", hint="give 384, or 640x896 (width x height)")
    return sides[0], sides[-1]


def parse_layers(layer: int | None, layers: str | None) -> tuple[int, ...] | None:
    """Read `--layer 18` or `--layers 12,18`, which exclude each other.

    >>> parse_layers(None, "12,18"), parse_layers(9, None), parse_layers(None, None)
    ((12, 18), (9,), None)
    """
    if layer is not None and layers is not None:
        raise UsageError("--layer and --layers exclude each other", hint="pass one of them")
    if layers is None:
        return None if layer is None else (layer,)
    try:
        return tuple(int(part) for part in layers.split(","))
    except ValueError:
        raise UsageError(f"{layers!r} are not layers", hint="write numbers: 12,18") from None


def parse_region(text: str | None) -> list[tuple[float, float]] | None:
    """Read a region, `x,y,width,height` or `x,y x,y x,y ...` in pixels; `none` removes it.

    >>> parse_region("10,20,30,40"), parse_region("0,0 9,0 9,9"), parse_region("none")
    ([(10.0, 20.0), (40.0, 60.0)], [(0.0, 0.0), (9.0, 0.0), (9.0, 9.0)], [])
    """
    if text is None:
        return None
    if text == "none":
        return []
    try:
        points = [tuple(float(v) for v in part.split(",")) for part in text.split()]
    except ValueError:
        points = []
    if len(points) == 1 and len(points[0]) == 4:
        x, y, width, height = points[0]
        return [(x, y), (x + width, y + height)]
    if len(points) >= 3 and all(len(p) == 2 for p in points):
        return [(p[0], p[1]) for p in points]
    raise UsageError(
        f"{text!r} is not a region", hint="give x,y,width,height or a polygon as 'x,y x,y x,y'"
    )
