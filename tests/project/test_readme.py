"""Every command and snippet of README.md runs, in its order, in a directory like that of a user."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from paths import ROOT
from PIL import Image

from anoco_edge.demo.render import render

README = (ROOT / "README.md").read_text(encoding="utf-8")
NO_CAMERA = 3  # exit code where no camera is plugged in


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", README, flags=re.S | re.M)


COMMANDS = [line for block in blocks("sh") for line in block.strip().splitlines()]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write good/, more-good/, bad/, parts/ and dataset/ as the README describes them."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "good").mkdir()
    (folder / "parts").mkdir()
    for k in range(5):
        Image.fromarray(render("washer", k).rgb).save(folder / "good" / f"good-{k}.png")
    for k, defect in enumerate(["scratch", None, "missing-hole"]):
        Image.fromarray(render("washer", 50 + k, defect).rgb).save(
            folder / "parts" / f"part-{k}.png"
        )
    defects = ["scratch", "missing-hole"]
    save(folder / "more-good", [render("washer", 100 + k).rgb for k in range(20)])
    save(
        folder / "bad", [render("washer", 200 + k, defect).rgb for k, defect in enumerate(defects)]
    )
    dataset = folder / "dataset"
    save(dataset / "train" / "good", [render("washer", 300 + k).rgb for k in range(4)])
    save(dataset / "test" / "good", [render("washer", 400 + k).rgb for k in range(2)])
    wrong = [render("washer", 500 + k, defect) for k, defect in enumerate(defects)]
    save(dataset / "test" / "defect", [part.rgb for part in wrong])
    save(dataset / "ground_truth" / "defect", [part.mask for part in wrong])
    yield folder


def save(folder: Path, pictures: list[NDArray[Any]]) -> None:
    folder.mkdir(parents=True)
    for k, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{k:02}.png")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        shlex.split(command), cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.xdist_group("readme")
def test_every_command_runs(workplace: Path) -> None:
    cameras = list(Path("/dev").glob("video*"))
    executed = 0
    for command in COMMANDS:
        if not command.startswith("anoco-edge") or (cameras and "--camera" in command):
            continue  # make and pip are tested below, and a real camera would run for ever
        result = run(command, workplace)
        expected = NO_CAMERA if "--camera" in command else 0
        assert result.returncode == expected, f"{command}\n{result.stdout}\n{result.stderr}"
        assert "Traceback" not in result.stderr
        executed += 1
    assert executed >= 20
    assert (workplace / "out" / "report.html").is_file()


@pytest.mark.xdist_group("readme")
def test_python_snippets_run(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (workplace / "line.anoco").exists():  # the commands ran in another process, or not yet
        export = next(c for c in COMMANDS if c.startswith("anoco-edge export"))
        assert run(export, workplace).returncode == 0
    monkeypatch.chdir(workplace)
    for snippet in blocks("python"):
        exec(compile(snippet, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "anomalous" in printed


def test_make_targets_and_extras_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for command in COMMANDS:
        words = shlex.split(command)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.M), command
        elif words[0] == "pip":
            for extra in re.findall(r"[a-z]+", words[2]):
                assert re.search(rf"^{extra} = \[", project, flags=re.M), command
        else:
            assert words[0] == "anoco-edge", command


def test_pictures_exist() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
