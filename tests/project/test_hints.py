"""Every error of ours says what to do.

A hint is given where the error is raised, or the class has one for all (`default_hint`).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import anoco_edge
import anoco_edge_calibration
import anoco_edge_export
from anoco_edge import errors

ROOTS = [
    Path(package.__file__ or "").parent
    for package in (anoco_edge, anoco_edge_calibration, anoco_edge_export)
]
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.AnocoError)
}
# These pass on the text of another error, which ends with what to do.
PASSED_ON = {
    "cli/views/inference.py",
    "demo/line.py",
    "engines/ort_gpu.py",
    "engines/tensorrt.py",
    "fleet/pool.py",
    "sinks/guarded.py",
}


def without_hint(source: str) -> list[int]:
    """The lines in which an error is made that does not say what to do."""
    return [
        call.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in CLASSES
        and not CLASSES[call.func.id].default_hint
        and not any(keyword.arg in ("hint", None) for keyword in call.keywords)
    ]


def test_every_error_says_what_to_do() -> None:
    found = {
        str(path.relative_to(root)): lines
        for root in ROOTS
        for path in root.rglob("*.py")
        if (lines := without_hint(path.read_text(encoding="utf-8")))
    }
    assert set(found) == PASSED_ON, {k: v for k, v in found.items() if k not in PASSED_ON}


def test_an_error_without_a_hint_is_found() -> None:
    assert without_hint('raise UsageError("it is wrong")\nraise BundleError("it is damaged")') == [
        1
    ]
    assert without_hint('raise UsageError("it is wrong", hint="mend it")') == []


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_hint_of_its_own_comes_before_that_of_the_class(name: str) -> None:
    kind = CLASSES[name]
    assert kind("it is wrong", hint="mend it").hint == "mend it"
    assert kind("it is wrong").hint == kind.default_hint
