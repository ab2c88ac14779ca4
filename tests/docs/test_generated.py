"""What is written from the code says what the code says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from paths import ROOT
from PIL import Image

from anoco_edge.cli.app import COMMANDS

GENERATORS = ROOT / "docs" / "generators"
READS = (
    re.compile(r"(?:getenv|environ(?:\.get|\.setdefault)?)\s*[(\[]\s*\"([A-Z][A-Z0-9_]+)\""),
    re.compile(r"\bif\.not\.env\.([A-Z][A-Z0-9_]+)"),
    # Names in a constant, which is what is read then.
    re.compile(r"(?:VARIABLE|kVariable|_TRANSPORT) = \"([A-Z][A-Z0-9_]+)\""),
)
OUR_CODE = ("anoco_edge", "export", "calibration", "runtime/src", "pyproject.toml")
OTHERS = {"HOME", "OPENCV_LOG_LEVEL", "OPENCV_FFMPEG_LOGLEVEL", "OPENBLAS_CORETYPE", "TMPDIR"}
"""Variables of other programs that are read or set and that nobody needs to know of."""


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(str(GENERATORS))
    return importlib.import_module(request.param)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def read_variables() -> set[str]:
    files = [ROOT / "pyproject.toml"]
    for folder in OUR_CODE[:-1]:
        files += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".cpp", ".hpp")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return {name for text in texts for pattern in READS for name in pattern.findall(text)}


def test_every_environment_variable_is_documented_and_read() -> None:
    page = (ROOT / "docs/reference/environment-variables.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row)}
    read = read_variables() - OTHERS
    assert {"ANOCO_EDGE_LIBRARY", "ANOCO_EDGE_KERNELS", "ANOCO_EDGE_NATIVE"} <= read
    assert not read - documented - {"NVIDIA_TF32_OVERRIDE"}, "read, and not on the page"
    ours = {name for name in documented if name.startswith("ANOCO_")}
    used = {name for name in ours if name in read or in_tests(name)}
    assert ours == used, f"on the page, and read nowhere: {ours - used}"


def in_tests(name: str) -> bool:
    return any(name in path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("generator", ["cli_reference"], indirect=True)
def test_the_command_line_reference_has_every_command_and_option(generator: ModuleType) -> None:
    import typer

    from anoco_edge.cli.app import make_app

    page = generator.markdown()
    root = typer.main.get_command(make_app())
    for command in COMMANDS:
        assert re.search(rf"^###? {command.name}$", page, flags=re.M), command.name
        assert f"$ anoco-edge {command.name} {command.arguments}".rstrip() in page
        found = root
        for word in command.name.split():
            found = found.commands[word]  # type: ignore[attr-defined]
        for parameter in found.params:
            if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
                assert parameter.opts[0] in page, (command.name, parameter.opts)


@pytest.mark.parametrize("generator", ["c_reference"], indirect=True)
def test_the_c_reference_has_every_function_of_the_library(generator: ModuleType) -> None:
    page = generator.markdown()
    headers = [(ROOT / "runtime/include" / name).read_text() for name in generator.HEADERS]
    for header in headers:
        functions = re.findall(r"^ANOCO_API [^(]*?(anoco_\w+)\(", header, flags=re.M)
        structs = re.findall(r"^typedef struct (\w+) \{", header, flags=re.M)
        assert functions or structs
        for name in (*functions, *structs):
            assert f"#{name} }}" in page or f'id="{name}"' in page, name


@pytest.mark.parametrize("generator", ["exit_codes"], indirect=True)
def test_every_exit_code_has_a_meaning(generator: ModuleType) -> None:
    from anoco_edge import errors

    page = generator.markdown()
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = [kind for kind in found if issubclass(kind, errors.AnocoError)]
    assert len(kinds) > 8
    for kind in kinds:
        assert f"| `{kind.__name__}` | {kind.exit_code} |" in page


def test_pictures_are_what_their_script_draws() -> None:
    script = load(ROOT / "docs/pictures.py")
    for path, picture in script.pictures().items():
        if isinstance(picture, str):
            assert path.read_text(encoding="utf-8") == picture, (
                "run: python docs/pictures.py --write"
            )
        else:
            with Image.open(path) as kept:
                difference = np.abs(np.asarray(kept, float) - np.asarray(picture, float))
            assert difference.max() <= 1, "run: python docs/pictures.py --write"
