"""Errors of the library name parameters; the command line shows its options in their place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from command_line import fails, ok
from paths import ROOT
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge import Bundle
from anoco_edge.cli.app import make_app
from anoco_edge.cli.flags import OPTIONS, with_flags
from anoco_edge.cli.option_groups import RunOptions
from anoco_edge.engines import EngineSettings
from anoco_edge.errors import UsageError

OTHER_PROGRAMS = (  # options of other programs that our messages may name
    *("ray start ", "pip install ", "--system-site-packages"),
    *("--format=csv", "--query-gpu"),  # nvidia-smi
    *("--target-processes", "--tool"),  # compute-sanitizer
)
PACKAGE_FOLDERS = [
    ROOT / "anoco_edge",
    ROOT / "export/anoco_edge_export",
    ROOT / "calibration/anoco_edge_calibration",
]
PARAMETER = re.compile(r"`([a-z_]+)(?:=[^`]*)?`")
ATTRIBUTES = {"scored"}  # an attribute of an inspection, not a parameter


def options_of(command: object) -> Iterator[str]:
    """List every option of a command and of the commands below it."""
    for option in getattr(command, "params", ()):
        yield from option.opts
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def texts() -> Iterator[tuple[str, str]]:
    """Yield every string of the library that is not a docstring, with its file and line."""
    files = [path for package in PACKAGE_FOLDERS for path in package.rglob("*.py")]
    assert len(files) > 200
    for path in files:
        if ROOT / "anoco_edge/cli" in path.parents or path.name in (
            "latency.py",
            "metric_speed.py",
        ):
            continue  # skip the command line, and modules that are programs of their own
        tree = ast.parse(path.read_text())
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in prose:
                continue
            if isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_no_text_of_the_library_names_an_option() -> None:
    named = [
        f"{place}: {text}"
        for place, text in texts()
        if re.search(r"(^|[\s(`'])--[a-z]", text)
        if not any(program in text for program in OTHER_PROGRAMS)
    ]
    assert not named, "name the parameter in backticks instead:\n" + "\n".join(named)


def test_every_parameter_that_the_library_names_has_an_option() -> None:
    used = {found: place for place, text in texts() for found in PARAMETER.findall(text)}
    assert len(used) > 10
    assert not {name: place for name, place in used.items() if name not in {*OPTIONS, *ATTRIBUTES}}


def test_every_option_of_the_table_exists() -> None:
    assert set(OPTIONS.values()) <= set(options_of(typer.main.get_command(make_app())))


def test_python_and_the_command_line_each_read_their_own_words(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "line.anoco").path
    pictures = write_good_pictures(tmp_path / "good", 2)
    for product in ("nut", "bolt"):
        ok("enroll", bundle, *pictures, "--product", product)
    with pytest.raises(UsageError, match=r"say which with `product`$"):
        Bundle.open(bundle).product()
    assert fails(2, "infer", bundle, pictures[0]).endswith("say which with --product")


def test_text_in_backticks_that_is_no_parameter_stays() -> None:
    assert with_flags("log in with `hf auth login`") == "log in with `hf auth login`"
    assert with_flags("a file called `x`") == "a file called `x`"


def test_every_option_of_a_run_reaches_the_engine() -> None:
    words = {"device": "GPU", "cpu_precision": "fp32"}
    given = RunOptions(threads=3, arena=False, blocking_sync=True, **words)  # type: ignore[arg-type]
    wanted = EngineSettings(threads=3, arena=False, blocking_sync=True, **words)  # type: ignore[arg-type]
    assert given.settings() == wanted
