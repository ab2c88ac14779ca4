"""docs/architecture.md names files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
FOLDERS = ("anoco_edge", "export", "calibration", "runtime", "tests", "docs", "examples")
QUOTED = re.compile(r"`([^`\n]+)`")


def places() -> list[tuple[str, list[str]]]:
    """The rows of tables that name a file, with the functions and classes beside it."""
    found = []
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and (path := QUOTED.fullmatch(cells[1])) and "/" in path[1]:
            found.append((path[1], QUOTED.findall(cells[2])))
    return found


def python_names(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods of its classes as `Class.method`."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    top = [node for node in ast.parse(path.read_text()).body if isinstance(node, kinds)]
    names = {node.name for node in top}
    for node in top:
        names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, kinds)}
    return names


def has_name(path: Path, name: str) -> bool:
    if path.suffix == ".py":
        return name in python_names(path)
    return re.search(rf"\b{re.escape(name)}\b", path.read_text()) is not None


def test_there_are_many_places() -> None:
    assert len(places()) > 60
    assert sum(len(names) for _, names in places()) > 80


@pytest.mark.parametrize(("path", "names"), places())
def test_functions_are_where_the_page_says(path: str, names: list[str]) -> None:
    file = ROOT / path
    assert file.is_file(), f"{path} does not exist"
    absent = [name for name in names if not has_name(file, name)]
    assert not absent, f"{path} has no {absent}"


def test_every_path_exists() -> None:
    paths = {word.split(":")[0] for word in QUOTED.findall(TEXT) if word.startswith(FOLDERS)}
    paths = {path for path in paths if "/" in path and " " not in path}
    assert len(paths) > 60
    assert not sorted(path for path in paths if not (ROOT / path).exists())


def test_a_wrong_name_is_noticed() -> None:
    assert has_name(ROOT / "anoco_edge/detector.py", "Detector.open")
    assert not has_name(ROOT / "anoco_edge/detector.py", "Detector.close")
    assert not has_name(ROOT / "runtime/src/scorer/scorer.hpp", "Scorers")


def test_layers_are_those_that_the_test_of_imports_holds() -> None:
    section = TEXT.split("## Layers")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    named = {word.removesuffix(".py") for row in rows for word in QUOTED.findall(row)}
    package = ROOT / "anoco_edge"
    ours = {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}
    ours |= {path.stem for path in package.glob("*.py") if not path.name.startswith("_")}
    assert ours <= named, f"the table of layers leaves out {sorted(ours - named)}"
