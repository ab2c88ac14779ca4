"""The progress bar shows the long part of a step on a line of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import ok
from rich.progress import Progress

from anoco_edge.cli.console import err, progress


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record what bars are told, with the number of the line, since no test runs in a terminal."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(Progress, "update", lambda _, line, **what: told.append({**what, 0: line}))
    assert not err.is_terminal
    return told


def test_a_phase_has_a_line_of_its_own_and_the_next_takes_it_over(
    shown: list[dict[str, Any]],
) -> None:
    with progress("building x", 2) as step:
        step("graph")
        step.phase("Timing [all] tactics", 3, 7)
        step.phase("writing", 0, 2)
    assert shown == [
        {0: 0, "description": "building x: graph"},
        {0: 1, "description": r"Timing \[all] tactics", "completed": 3, "total": 7},
        {0: 1, "description": "writing", "completed": 0, "total": 2},
    ]


def test_every_command_that_thins_a_bank_shows_it(here: Path, shown: list[dict[str, Any]]) -> None:
    for command in (
        "product set line.anoco --max-patches 20",
        "enroll line.anoco parts/good0.png",
        "references remove line.anoco good0.png",
    ):
        shown.clear()
        ok(*command.split())
        thinned = [what for what in shown if what.get("description") == "thinning the bank"]
        assert thinned and thinned[-1]["completed"] == thinned[-1]["total"] > 0, command
