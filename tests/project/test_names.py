"""No module, class or function carries an old name that was replaced by the field's own word.

Command-line options, JSON keys and ordinary prose are exempt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import PACKAGES, ROOT, RUNTIME, TESTS

PYTHON = {
    *("road", "Road", "PythonRoad", "NativeRoad", "open_road", "Subject", "Loaded", "Opening"),
    *("witness", "Witness", "BankWitness", "judgement", "Judgement", "Judged", "see", "Seen"),
    *("there", "canvas", "Canvas", "geometry", "Geometry", "counted", "taught", "Taught"),
    *("settled", "Settled", "examiner", "Examiner", "held_out", "handover", "ahead", "Ahead"),
    *("flavours", "Flavour", "Refusals", "launching", "Launches", "Closing", "heavy", "islands"),
    *("quantise", "state_file", "alike", "parcels", "measuring", "Contest", "Entrant", "rivals"),
    *("Described", "Received", "Shown", "Warned", "Chosen", "Noting", "gentle_views"),
}
# These words are still good names for functions, but not for the modules that once had them.
MODULES = PYTHON | {
    *("views", "maps", "closing", "lines", "run", "expected", "half", "rounding", "near"),
    *("thresholds", "threshold"),
}
# One is what commands print, the other the part of calibration that is about thresholds.
ALLOWED_MODULES = {"anoco_edge/cli/views", "calibration/anoco_edge_calibration/thresholds"}
CPP = {
    *("told", "absent", "Road", "Lane", "crowd", "usual", "sealed", "Taps", "here_", "there_"),
    *("canvas", "geometry", "witness", "judgement", "moody", "gentle_views"),
}
CPP_SUFFIXES = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".c"}


def python_files() -> list[Path]:
    roots = [ROOT / "anoco_edge", *PACKAGES[1:], TESTS, ROOT / "examples"]
    return [path for root in roots for path in sorted(root.rglob("*.py"))]


def definitions(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name


def old_definitions(path: Path) -> list[str]:
    return [
        f"{path}:{line}: {name}" for line, name in definitions(path) if name.lstrip("_") in PYTHON
    ]


def test_no_class_or_function_of_python_has_an_old_name() -> None:
    files = python_files()
    assert len(files) > 300
    assert [found for path in files for found in old_definitions(path)] == []


def test_no_module_or_package_has_an_old_name() -> None:
    named = {path.with_suffix("") for path in python_files()}
    named |= {path.parent for path in named}
    old = [
        str(path.relative_to(ROOT))
        for path in sorted(named)
        if path.name in MODULES and str(path.relative_to(ROOT)) not in ALLOWED_MODULES
    ]
    assert old == []


def identifiers(text: str) -> set[str]:
    """List the words of C++ code, without comments and strings."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", text, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_]\w*", code))


def test_no_identifier_or_file_of_the_runtime_has_an_old_name() -> None:
    files = [path for path in sorted(RUNTIME.rglob("*")) if path.suffix in CPP_SUFFIXES]
    files = [path for path in files if "build" not in path.parts]
    assert len(files) > 150
    old = [f"{path}: {', '.join(found)}" for path in files if (found := CPP & _words(path))]
    assert old == []


def _words(path: Path) -> set[str]:
    return identifiers(path.read_text()) | {path.stem}


@pytest.mark.parametrize("text", ["class Road: ...", "def _examiner(): ...", "def counted(): ..."])
def test_an_old_name_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    assert len(old_definitions(tmp_path / "module.py")) == 1


def test_words_in_comments_and_texts_of_the_runtime_are_exempt() -> None:
    assert identifiers('int here; // there_\nf("crowd"); /* Lane\n */') == {"int", "here", "f"}
