"""The short version of `make attack`, one test a campaign; the full one is `make attack`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.campaign import Plan, Tally, campaigns


@pytest.mark.parametrize("name", list(campaigns()))
def test_campaign_holds(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tally = Tally()
    for case in campaigns()[name].cases(Plan(tmp_path, seed=0, short=True)):
        tally.count(case)
    for what in tally.not_executed:
        record_property("not executed", what)
    if tally.not_executed and not tally.tried:
        pytest.skip(tally.not_executed[0])
    assert tally.tried, "the campaign tried nothing"
    assert not tally.broken, f"{tally.broken} of {tally.tried} broken, first: {tally.first}"
    record_property("figure", f"attack {name}: {tally.tried} tried, {tally.held} held (short)")
