"""Logic that moved out of the command line works from Python: each docstring's example runs."""

from __future__ import annotations

import doctest
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import defective_picture, ok
from PIL import Image
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge.bundle import create_builtin_bundle
from anoco_edge.teaching import calibration_effects, measure_augmentation_cost, past_effects, tune
from anoco_edge.teaching.calibration_scores import read_calibration_scores
from anoco_edge.teaching.defects import score_defects
from anoco_edge_calibration.evaluation.bundle_evaluation import evaluate_bundle
from anoco_edge_export.package import package_bundle


def example_of(function: Callable[..., Any]) -> str:
    """Return the indented block after `Example::` in a docstring."""
    text = inspect.getdoc(function) or ""
    _, found, block = text.partition("Example::\n")
    assert found, f"{function.__name__} has no example"
    lines = [line for line in block.splitlines() if not line or line.startswith("    ")]
    return textwrap.dedent("\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a calibrated line.anoco, its parts/, more-good/ parts and a bad one."""
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(tmp_path / "line.anoco")
    ok("enroll", "line.anoco", *write_good_pictures(tmp_path / "good", 4))
    write_good_pictures(tmp_path / "parts", 6, seed=50)
    ok("calibrate", "line.anoco", "parts", "--accept-fewer")
    write_good_pictures(tmp_path / "more-good", 16, seed=100)
    Image.fromarray(defective_picture()).save("bad.png")
    return tmp_path


@pytest.fixture
def dataset(folder: Path) -> Path:
    """Arrange parts/ in the layout of MVTec AD."""
    for path in (folder / "parts").glob("*.png"):
        path.unlink()
    write_good_pictures(folder / "parts/train/good", 3)
    write_good_pictures(folder / "parts/test/good", 2, seed=40)
    (folder / "parts/test/red").mkdir()
    Image.fromarray(defective_picture()).save(folder / "parts/test/red/0.png")
    return folder


@pytest.mark.parametrize(
    "function",
    [
        create_builtin_bundle,
        measure_augmentation_cost,
        calibration_effects,
        past_effects,
        read_calibration_scores,
        score_defects,
        tune,
        package_bundle,
    ],
    ids=lambda function: function.__name__,
)
def test_the_example_runs(
    folder: Path, function: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(example_of(function), function.__name__, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_example_of_an_evaluation_runs(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(example_of(evaluate_bundle), "evaluate_bundle", "exec"), {})
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("parts 1 0 ") and rows[-1].startswith("mean 2 mean ")


def test_doctests_do_not_run_these_examples() -> None:
    """These examples need a bundle, so this file runs them and doctest does not."""
    assert not doctest.DocTestParser().get_examples(measure_augmentation_cost.__doc__ or "")
