"""Each test runs the short version of one campaign; `make attack` runs the full ones.

Those that kill or stop processes at random are in test-full only: tests of each command do the same
step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.campaign import Plan, Tally, campaigns

RANDOM = {"clocks", "kills", "power_loss"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.full] if n in RANDOM else []) for n in campaigns()],
)
def test_campaign_holds(
    name: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    campaign = campaigns()[name]
    if getattr(campaign, "NATIVE", False) and "ANOCO_EDGE_LIBRARY" not in os.environ:
        built = request.getfixturevalue("native_build") / "libanoco_edge.so"
        monkeypatch.setenv("ANOCO_EDGE_LIBRARY", str(built))
    tally = Tally()
    for case in campaign.cases(Plan(tmp_path, seed=0, short=True)):
        tally.count(case)
    for what in tally.not_executed:
        record_property("not executed", what)
    if tally.not_executed and not tally.tried:
        pytest.skip(tally.not_executed[0])
    assert tally.tried, "the campaign tried nothing"
    assert not tally.broken, f"{tally.broken} of {tally.tried} broken, first: {tally.first}"
    record_property("figure", f"attack {name}: {tally.tried} tried, {tally.held} held (short)")
