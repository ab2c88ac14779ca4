"""The packages of anoco_edge form layers: a module imports from its own layer or from below.

The import graph is read from the syntax tree of every module, imports inside functions and those
for type checkers included. Packages that share a layer may import each other in one direction.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import anoco_edge

PACKAGE = Path(anoco_edge.__file__).parent

LAYERS = (  # lowest first, as docs and DESIGN list them
    {"errors", "text", "machine", "plugins", "storage", "_moved"},
    {"images", "native"},
    {"scoring", "bundle"},
    {"plans"},
    {"engines"},
    {"pipeline"},
    {"teaching", "detector", "drift"},
    {"reporting"},
    {"results", "sinks", "sources"},
    {"diagnostics", "fleet", "demo"},
    {"line"},
    {"station"},
    {"cli"},
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
# The package's own __init__ offers Detector and Bundle, and the entry point starts the CLI.
ABOVE_ALL = {"__init__", "__main__"}

Import = tuple[Path, str]  # the file that imports, and the dotted name that it imports


def modules(package: Path) -> Iterator[Path]:
    return (path for path in sorted(package.rglob("*.py")) if "_lib" not in path.parts)


def imported(tree: ast.AST) -> Iterator[str]:
    """List all dotted names that a module imports, wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path, package: Path) -> str:
    """Return the folder or module directly below the package that a file belongs to."""
    first = path.relative_to(package).parts[0]
    return first.removesuffix(".py")


def part_named(name: str, parts: set[str]) -> str | None:
    """Return the part of anoco_edge that a dotted name reaches, or None for other packages."""
    words = name.split(".")
    if words[0] != "anoco_edge" or len(words) < 2:
        return None
    return words[1] if words[1] in parts else None


def edges(package: Path) -> dict[tuple[str, str], list[Import]]:
    """Return which part imports which other part, and where."""
    files = list(modules(package))
    parts = {part_of(path, package) for path in files} - ABOVE_ALL
    found: dict[tuple[str, str], list[Import]] = {}
    for path in files:
        source = part_of(path, package)
        if source in ABOVE_ALL:
            continue
        for name in imported(ast.parse(path.read_text())):
            target = part_named(name, parts)
            if target is not None and target != source:
                found.setdefault((source, target), []).append((path, name))
    return found


def upward_imports(package: Path) -> list[str]:
    """List each import of a higher layer, with the names of the two files."""
    return [
        f"{path.relative_to(package.parent)} imports {name}: {source} is below {target}"
        for (source, target), places in edges(package).items()
        if HEIGHT[source] < HEIGHT[target]
        for path, name in places
    ]


def cycle(package: Path) -> str:
    """Find one cycle between packages, with a file for each step; empty if there is none."""
    found = edges(package)
    graph: dict[str, set[str]] = {}
    for source, target in found:
        graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = list(reversed(error.args[1]))
        pairs = [(a, b) if (a, b) in found else (b, a) for a, b in pairwise(ring)]
        return "; ".join(
            f"{found[pair][0][0].relative_to(package.parent)} imports {found[pair][0][1]}"
            for pair in pairs
        )
    return ""


def test_every_part_has_a_layer() -> None:
    parts = {part_of(path, PACKAGE) for path in modules(PACKAGE)} - ABOVE_ALL
    assert parts <= HEIGHT.keys(), f"give these a layer: {sorted(parts - HEIGHT.keys())}"


def test_at_most_five_modules_lie_loose() -> None:
    loose = {path.stem for path in PACKAGE.glob("*.py")} - ABOVE_ALL
    assert len(loose) <= 5, sorted(loose)


def test_no_module_imports_from_a_higher_layer() -> None:
    assert upward_imports(PACKAGE) == []


def test_no_packages_import_each_other() -> None:
    assert cycle(PACKAGE) == ""


def planted(folder: Path, **files: str) -> Path:
    package = folder / "anoco_edge"
    for name, text in files.items():
        path = package / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return package


@pytest.mark.parametrize(
    "statement",
    [
        "from anoco_edge.cli import app",
        "import anoco_edge.cli.app",
        "def f():\n    from anoco_edge.cli.app import app",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from anoco_edge import cli",
    ],
)
def test_a_planted_upward_import_is_found(tmp_path: Path, statement: str) -> None:
    package = planted(tmp_path, storage__files=statement, cli__app="")
    (first, *_) = upward_imports(package)
    assert first.startswith("anoco_edge/storage/files.py imports anoco_edge.cli")


def test_a_planted_cycle_is_found(tmp_path: Path) -> None:
    package = planted(
        tmp_path,
        results__rows="from anoco_edge.sinks.folder import Folder",
        sinks__folder="from anoco_edge.results import rows",
    )
    assert upward_imports(package) == []
    found = cycle(package)
    assert "anoco_edge/results/rows.py imports anoco_edge.sinks.folder" in found
    assert "anoco_edge/sinks/folder.py imports anoco_edge.results" in found


def test_an_import_from_below_is_allowed(tmp_path: Path) -> None:
    package = planted(tmp_path, storage__files="", cli__app="from anoco_edge.storage import files")
    assert upward_imports(package) == []
    assert cycle(package) == ""


def test_the_other_packages_depend_on_this_one_alone() -> None:
    """Export and calibration import anoco_edge and not each other."""
    root = PACKAGE.parent
    for folder, other in (
        (root / "export/anoco_edge_export", "anoco_edge_calibration"),
        (root / "calibration/anoco_edge_calibration", "anoco_edge_export"),
    ):
        found = [
            f"{path.relative_to(root)} imports {name}"
            for path in modules(folder)
            for name in imported(ast.parse(path.read_text()))
            if name.split(".")[0] == other
        ]
        assert found == []
