"""All commands are registered in one way, stay small, and share their options."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from command_line import fails, ok, run_cli
from paths import ROOT
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.bundle import Bundle
from anoco_edge.cli.app import COMMANDS, GROUPS

COMMAND_FILES = sorted((ROOT / "anoco_edge/cli/commands").glob("*.py"))
MOST_LINES = 150
SCREEN = 60  # lines of a function, without its signature


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make line.anoco with one product in the current directory."""
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", "line.anoco", *write_good_pictures(tmp_path / "good", 3))
    return tmp_path


def test_every_command_is_in_the_table_once_and_has_a_module() -> None:
    names = [command.name for command in COMMANDS]
    assert len(set(names)) == len(names)
    modules = {command.run.__module__.rpartition(".")[2] for command in COMMANDS}
    assert modules == {path.stem for path in COMMAND_FILES} - {"__init__"}
    assert {name.split()[0] for name in names if " " in name} == set(GROUPS)


@pytest.mark.parametrize("path", COMMAND_FILES, ids=lambda path: path.name)
def test_a_command_is_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.body[0].lineno < SCREEN, node.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_ends_with_its_example(command: object) -> None:
    name = getattr(command, "name")  # noqa: B009
    ran = ok(*name.split(), "--help")
    assert f"Example: anoco-edge {name}" in " ".join(ran.out.split())


def test_backbones_are_those_of_export_list() -> None:
    assert ok("backbones").out == ok("export", "--list").out
    listed = ok("backbones", "--json").json
    assert listed == ok("export", "--list", "--json").json
    assert {"efficientnet-lite0", "dinov3-l"} <= {recipe["id"] for recipe in listed}


def test_package_writes_what_export_with_a_bundle_writes(line: Path) -> None:
    ran = ok("package", "line.anoco", "--single-file", "a.onnx", "--triton", "models", "--json")
    assert ran.json["bundle"] == "line.anoco" and ran.json["single_file"] == "a.onnx"
    assert all(Path(file).is_file() for file in ran.json["triton"])
    ok("export", "--bundle", "line.anoco", "--single-file", "b.onnx")
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    shown = ok("package", "line.anoco", "--single-file", "a.onnx", "--overwrite")
    assert "pixels in, score, energy and map out" in shown.out


def test_what_cannot_be_packaged(line: Path) -> None:
    assert "say --single-file" in fails(2, "package", "line.anoco")
    Path("there.onnx").touch()
    exists = fails(2, "package", "line.anoco", "--single-file", "there.onnx")
    assert exists.endswith("there.onnx exists already; choose another, or pass --overwrite")
    assert "no product 'nut'" in fails(
        2, "package", "line.anoco", "--single-file", "c.onnx", "--product", "nut"
    )
    assert "there is no bundle" in fails(4, "package", "gone.anoco", "--single-file", "c.onnx")
    assert not Path("c.onnx").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("info", "line.anoco"),
        ("verify", "line.anoco"),
        ("enroll", "line.anoco", "other.png"),
        ("product", "set", "line.anoco", "--min-area", 5),
        ("references", "list", "line.anoco"),
        ("references", "remove", "line.anoco", "good0.png"),
        ("calibrate", "line.anoco", "parts", "--accept-fewer"),
        ("bench", "line.anoco", "--frames", 1, "--warmup", 0),
        ("package", "line.anoco", "--single-file", "one.onnx"),
    ],
    ids=lambda command: " ".join(map(str, command[:2])),
)
def test_a_command_opens_its_bundle_once(
    line: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    write_good_pictures(line / "parts", 3, seed=50)
    (line / "other.png").write_bytes((line / "parts" / "good0.png").read_bytes())
    opened: list[str] = []
    original = Bundle.open

    def counting(path: str | Path, *args: object, **options: object) -> Bundle:
        opened.append(str(path))
        return original(path, *args, **options)

    monkeypatch.setattr(Bundle, "open", counting)
    ran = run_cli(*command)
    assert ran.code == 0, ran.err
    assert opened == ["line.anoco"]


def test_notes_in_json_name_options_too(line: Path) -> None:
    ok("product", "set", "line.anoco", "--threshold", 5)
    write_good_pictures(line / "parts", 1, seed=50)
    report = ok("enroll", "line.anoco", "parts", "--json").json
    assert any("--threshold 0 computes it" in note for note in report["notes"])
    assert "`" not in json.dumps(report["notes"])
