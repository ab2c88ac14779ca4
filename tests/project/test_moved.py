"""Old import paths work for one version: they warn, name the new path and give the same objects."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import anoco_edge
from anoco_edge._moved import MODULES, NAMES, new_path

ROOT = Path(anoco_edge.__file__).parents[1]
PACKAGES = ("anoco_edge", "export/anoco_edge_export", "calibration/anoco_edge_calibration")


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Unload the modules, so that the import of an old path is a first one."""
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if new_path(name)}
    yield
    for name in [*sys.modules]:
        if new_path(name):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("old", sorted(MODULES))
def test_an_old_module_is_the_new_one(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is {MODULES[old]} now"):
        alias = importlib.import_module(old)
    new = importlib.import_module(MODULES[old])
    public = [name for name in vars(new) if not name.startswith("_")]
    assert public or hasattr(new, "__path__")
    assert all(getattr(alias, name) is getattr(new, name) for name in public)
    with pytest.raises((AttributeError, ImportError)):
        _ = alias.no_such_name


@pytest.mark.usefixtures("unloaded")
@pytest.mark.filterwarnings("ignore:anoco_edge")
@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMES.items() for name in names]
)
def test_an_old_name_is_the_new_one(module: str, name: str) -> None:
    place, _, new = NAMES[module][name].partition(":")
    holder = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is {place}.{new} now"):
        found = getattr(holder, name)
    assert found is getattr(importlib.import_module(place), new)


@pytest.mark.usefixtures("unloaded")
def test_what_lies_inside_a_package_that_moved_is_found() -> None:
    with pytest.warns(DeprecationWarning, match=r"diagnostics\.bench\.statistics now"):
        statistics = importlib.import_module("anoco_edge.bench.statistics")
    from anoco_edge.diagnostics.bench import statistics as new

    assert statistics.__doc__ == new.__doc__


def test_the_warning_points_at_the_line_that_imports(tmp_path: Path) -> None:
    script = tmp_path / "line.py"
    script.write_text("import anoco_edge\n\nfrom anoco_edge.canvas import Canvas\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0
    assert f"{script}:3: DeprecationWarning: anoco_edge.canvas is" in done.stderr


def test_nothing_of_ours_uses_an_old_path() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    files += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    old = []
    for path in files:
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                moved = NAMES.get(node.module, {})
                names += [f"{a.name} (renamed)" for a in node.names if a.name in moved]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            old += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if name.endswith("(renamed)") or new_path(name)
            ]
    assert old == []
