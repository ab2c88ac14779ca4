"""The soak of `make soak`, for a few hundred parts, and that its checks find what is planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak import checks
from tests.soak.campaign import SoakPlan, memory_is_flat, soak
from tests.soak.checks import Row
from tests.soak.material import Material
from tests.soak.memory import over_time
from tests.soak.plc import Sent

MS = 1_000_000
EXPECTED = {(1, 0): "good", (1, 1): "anomalous", (2, 0): "good", (2, 1): "anomalous"}
MATERIAL = Material(Path(), 0, 0, 0, EXPECTED)
SENT = Sent("K1", 7, "tcp", product=1, answer=("PASS", 0))
ROW = Row("u1", "K1", 7, True, "good", 0, 1, 100 * MS, 180 * MS, 3, 110 * MS, "good")


@pytest.mark.full
def test_a_station_under_faults_keeps_its_promises(tmp_path: Path) -> None:
    report = soak(SoakPlan(tmp_path, parts=300, seconds=8.0, pause=0.5))
    assert report.held, [outcome for outcome in report.outcomes if outcome.broken]
    assert report.verdicts["good"] and report.verdicts["anomalous"]
    assert len(report.happened) > 8, report.happened


def good(row: Row = ROW, sent: Sent = SENT, *stops: tuple[int, int]) -> tuple[str, ...]:
    exposures = {3: 110 * MS, 4: 111 * MS, 5: 90 * MS}
    return checks.check_good([sent], [row], MATERIAL, exposures, list(stops)).broken


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accepted": False}, "not accepted"),
        ({"decided": 601 * MS}, "after its deadline"),
        ({"counter": None}, "no picture"),
        ({"counter": 4}, "did not expose it then"),
        ({"counter": 5, "exposed": 90 * MS}, "outside its window"),
        ({"counter": 4, "exposed": 111 * MS}, "its picture is not good"),
        ({"opinion": "no-verdict"}, "its picture is not good"),
        ({"product": 2}, "another product"),
    ],
)
def test_a_pass_that_is_forbidden_is_found(change: dict[str, object], words: str) -> None:
    assert good() == ()
    assert any(words in text for text in good(replace(ROW, **change)))  # type: ignore[arg-type]


def test_a_pass_while_the_judge_stood_still_and_a_frame_that_was_used_twice_are_found() -> None:
    assert "stood still" in good(ROW, SENT, (90 * MS, 200 * MS))[0]
    assert not good(ROW, SENT, (110 * MS, 200 * MS)), "it was triggered before"
    twice = [ROW, replace(ROW, uid="u2")]
    found = checks.check_good([SENT], twice, MATERIAL, {3: 110 * MS}, []).broken
    assert "frame 3 was used 2 times" in found


def test_triggers_without_an_outcome_or_with_two_are_found() -> None:
    def broken(sent: Sent, *rows: Row) -> str:
        return "; ".join(checks.check_outcomes([sent], list(rows)).broken)

    assert broken(SENT, ROW) == "" and broken(replace(SENT, arrived=False)) == ""
    assert "0 rows" in broken(SENT) and "2 rows" in broken(SENT, ROW, ROW)
    assert "never decided" in broken(SENT, replace(ROW, verdict=None))
    assert "no answer" in broken(replace(SENT, answer=None), ROW)
    assert "has no trigger" in broken(SENT, ROW, replace(ROW, code="K2"))


def test_an_answer_that_is_not_the_record_and_a_wrong_verdict_are_found() -> None:
    assert not checks.check_answers([SENT], [ROW]).broken
    assert checks.check_answers([SENT], [replace(ROW, verdict="anomalous")]).broken
    refused = replace(ROW, uid="u2", code="K2", accepted=False, verdict="no-verdict", reason=40)
    given_up = replace(ROW, verdict="no-verdict", reason=48)
    pair = [
        replace(SENT, answer=("NOVERDICT", 40)),  # the refusal comes first
        Sent("K2", 7, "tcp", product=1, repeat=True, answer=("NOVERDICT", 48)),
    ]
    assert not checks.check_answers(pair, [given_up, refused]).broken
    assert checks.check_answers(pair, [replace(given_up, reason=1), refused]).broken
    passed = [pair[0], replace(pair[1], answer=("PASS", 0))]
    assert "came with its number" in checks.check_answers(passed, [ROW, refused]).broken[0]
    assert not checks.check_answers(passed, [ROW, replace(refused, trigger=181 * MS)]).broken
    assert not checks.check_opinions([ROW], MATERIAL).broken
    assert checks.check_opinions([replace(ROW, opinion="anomalous")], MATERIAL).broken


def test_memory_that_grows_with_the_parts_is_found() -> None:
    """70 bytes for each of 100,000 parts are found; caches that fill in the first third are not."""
    parts = range(0, 100_000, 50)
    fills = over_time([70 + min(part / 3000, 8) + part % 7 / 100 for part in parts])
    leaks = over_time([70 + 70 * part / 1e6 for part in parts])
    assert not memory_is_flat({"line": fills, "judge": fills}, 1500, 100_000).broken
    (text,) = memory_is_flat({"line": leaks, "judge": fills}, 1500, 100_000).broken
    assert text == "line took 2.3 MB more in the last third than in the second"
    assert memory_is_flat({"line": leaks}, 100, 100_000).tried == 0
    assert memory_is_flat({"line": leaks}, 1500, 300).tried == 0
