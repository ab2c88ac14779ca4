"""Numbers outside the range of an option are refused in one line, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import refused, run_cli

from anoco_edge.cli.app import make_app
from anoco_edge.cli.options import check_number
from anoco_edge.detector import Detector
from anoco_edge.errors import UsageError

EXTREME = ("1e308", "-1e308", "inf", "-inf", "nan", "5e-324", "99999999999999999999")
INPUTS = {
    "infer": ("line.anoco", "parts"),
    "enroll": ("line.anoco", "parts/good0.png"),
    "calibrate": ("line.anoco", "parts"),
    "product set": ("line.anoco",),
}


def commands(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """List every command as the words that a user types."""
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    inner = [commands(one, (*path, name)) for name, one in command.commands.items()]
    return {name: one for some in inner for name, one in some.items()}


COMMANDS = commands(typer.main.get_command(make_app()))
OPTIONS = [
    (name, option.opts[0])
    for name in INPUTS
    for option in COMMANDS[name].params
    if not option.is_eager and option.opts[0].startswith("--") and not getattr(option, "is_flag", 0)
]


@pytest.mark.parametrize("all_values", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("words", INPUTS)
def test_no_option_stumbles_over_extreme_numbers(words: str, all_values: bool, here: Path) -> None:
    """No option of the command gives an internal error, not even one that takes text.

    Each gets every value, or two of them, which are others for the next option.
    """
    for number, option in enumerate(option for name, option in OPTIONS if name == words):
        two = [EXTREME[(2 * number + k) % len(EXTREME)] for k in range(2)]
        for value in EXTREME if all_values else two:
            ran = run_cli(*words.split(), *INPUTS[words], f"{option}={value}", "--product=a/b")
            assert "internal error" not in ran.err and "Traceback" not in ran.err, (option, value)
            assert ran.code in (1, 2, 3, 4), (option, value, ran)


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        ("infer", "--threshold", "5e-324"),
        ("infer", "--threshold", "1e308"),
        ("infer", "--threshold", "nan"),
        ("infer", "--batch", "99999999999999999999"),
        ("infer", "--threads", "9223372036854775807"),
        ("infer", "--teach", "99999999999999999999"),
        ("infer", "--camera", "99999999999999999999"),
        ("enroll", "--wait", "inf"),
        ("enroll", "--lambda", "1e308"),
        ("calibrate", "--false-reject", "5e-324"),
        ("product set", "--min-area", "1e308"),
    ],
)
def test_an_extreme_number_is_a_usage_error(
    words: str, option: str, value: str, here: Path
) -> None:
    inputs = ("line.anoco",) if option == "--camera" else INPUTS[words]
    line = refused(2, *words.split(), *inputs, f"{option}={value}")
    assert option in line or value in line


def test_usual_numbers_pass() -> None:
    for value in (0, -1, 0.0, -0.0, 1e-9, 2**31 - 1, 3.5, None, "text", True):
        check_number(value, "--option")
    check_number(2**40, "--id")


def test_the_library_refuses_such_a_threshold(here: Path) -> None:
    for value in (5e-324, 1e308, float("nan"), float("inf"), -0.0, -1.0):
        with pytest.raises(UsageError, match="threshold"):
            Detector.open("line.anoco", threshold=value)
