"""What must hold when a soak has ended, from the triggers, the answers and the data base."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from anoco_edge.line.core.settings import MS
from tests.soak.material import ACQUIRE_MS, DEADLINE_MS, Material
from tests.soak.plc import Sent

WORDS = {"good": "PASS", "anomalous": "FAIL", "no-verdict": "NOVERDICT"}


@dataclass(frozen=True)
class Row:
    """A part of the data base with its only capture."""

    uid: str
    code: str
    seq: int
    accepted: bool
    verdict: str | None
    reason: int
    product: int | None
    trigger: int
    decided: int
    counter: int | None
    exposed: int | None
    opinion: str | None


@dataclass(frozen=True)
class Outcome:
    """What was checked, how often, and what was broken."""

    name: str
    tried: int
    broken: tuple[str, ...] = ()


def read_rows(folder: Path) -> list[Row]:
    """Read all parts."""
    query = (
        "SELECT p.uid, part_code, seq, accepted, p.verdict, p.reason, p.product, trigger_ns, "
        "decided_ns, counter, exposed_from, c.verdict "
        "FROM part p LEFT JOIN capture c ON c.uid = p.uid ORDER BY p.uid"
    )
    with closing(sqlite3.connect(folder / "line.db")) as data:
        return [Row(*values) for values in data.execute(query)]


def read_exposures(path: Path) -> dict[int, int]:
    """Read when the camera exposed each frame, by its counter."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {int(counter): int(exposed) for counter, exposed in pairs}


def check_outcomes(sent: list[Sent], rows: list[Row]) -> Outcome:
    """Every trigger has exactly one outcome, and every row has its trigger."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.code].append(row)
    codes = {each.code for each in sent}
    broken = [f"{row.uid} has no trigger" for row in rows if row.code not in codes]
    for each in sent:
        number = len(found[each.code])
        if not each.arrived <= number <= 1:
            broken.append(f"{each} has {number} rows")
        elif number and found[each.code][0].verdict is None:
            broken.append(f"{each} was never decided")
        elif each.arrived and each.bus == "tcp" and each.answer is None:
            broken.append(f"{each} got no answer")
    return Outcome("each trigger has one outcome", len(sent), tuple(broken))


def check_answers(sent: list[Sent], rows: list[Row]) -> Outcome:
    """What was put out is what was recorded.

    Answers over TCP name no part code. Two parts that came with one number are answered in any
    order, and the first is not good if the second came before its verdict.
    """
    by_code = {row.code: row for row in rows}
    groups: list[list[Sent]] = []
    for each in sent:
        if each.repeat:
            groups[-1].append(each)
        else:
            groups.append([each])
    broken = []
    for group in groups:
        recorded = [by_code[each.code] for each in group if each.code in by_code]
        known = Counter((WORDS[row.verdict or ""], row.reason) for row in recorded)
        if Counter(each.answer for each in group if each.answer is not None) - known:
            broken.append(f"{group} are recorded as {recorded}")
        for first, second in pairwise(recorded):
            if first.verdict == "good" and second.trigger < first.decided:
                broken.append(f"{first} passed, and {second} came with its number")
    answered = sum(each.answer is not None for each in sent)
    return Outcome("answers are the records", answered, tuple(broken))


def check_good(
    sent: list[Sent],
    rows: list[Row],
    material: Material,
    exposures: Mapping[int, int],
    stops: list[tuple[int, int]],
) -> Outcome:
    """No part is good that the first principle forbids."""
    products = {each.code: each.product for each in sent}
    good = [row for row in rows if row.verdict == "good"]
    broken = []
    for row in good:
        why = [text for text, bad in _forbidden(row, material, exposures, products) if bad]
        why += [
            "the judge stood still from its trigger to its verdict"
            for began, ended in stops
            if began <= row.trigger and row.decided <= ended
        ]
        broken += [f"{row}: {text}" for text in why]
    used = Counter(row.counter for row in rows if row.counter is not None)
    broken += [f"frame {counter} was used {n} times" for counter, n in used.items() if n > 1]
    return Outcome("no PASS that P1 forbids", len(good), tuple(broken))


def _forbidden(
    row: Row, material: Material, exposures: Mapping[int, int], products: Mapping[str, int]
) -> Iterator[tuple[str, bool]]:
    yield "it was not accepted", not row.accepted
    yield "it was decided after its deadline", row.decided > row.trigger + DEADLINE_MS * MS
    if row.counter is None or row.exposed is None:
        yield "it has no picture", True
        return
    window = (row.trigger, row.trigger + ACQUIRE_MS * MS)
    exposed = exposures.get(row.counter, 0)
    yield "the camera did not expose it then", exposed != row.exposed
    yield "it was exposed outside its window", not window[0] <= exposed <= window[1]
    expected = material.expected.get((row.product or 0, material.picture(row.counter)))
    yield "its picture is not good", expected != "good" or row.opinion != "good"
    wanted = products.get(row.code, 0)
    yield "it was judged by another product", bool(wanted) and row.product != wanted


def check_opinions(rows: list[Row], material: Material) -> Outcome:
    """What the judge said is what it says of this picture and product without any fault."""
    judged = [row for row in rows if row.opinion is not None and row.counter is not None]
    broken = [
        f"{row} is not what the judge says of its picture"
        for row in judged
        if row.opinion != material.expected[row.product or 0, material.picture(row.counter or 0)]
    ]
    return Outcome("verdicts are those of the pictures", len(judged), tuple(broken))


def check_counters(rows: list[Row], shown: list[int], folder: Path) -> Outcome:
    """All rows are in the data base: its counters, those on the wires and the rows agree."""
    names = ("triggers", "good", "fail", "no_verdict", "missed")
    of = Counter(row.verdict if row.accepted else "missed" for row in rows)
    counted = [len(rows), of["good"], of["anomalous"], of["no-verdict"], of["missed"]]
    with closing(sqlite3.connect(folder / "line.db")) as data:
        stored = dict(data.execute("SELECT name, value FROM counter"))
    broken = [
        f"{name}: {found} rows, {stored.get(name, 0)} stored, {on_wire} on the wires"
        for name, found, on_wire in zip(names, counted, shown, strict=True)
        if not found == stored.get(name, 0) == on_wire
    ]
    return Outcome("all rows are in the data base", len(rows), tuple(broken))


def check_outbox(rows: list[Row], got: Mapping[str, int], folder: Path) -> Outcome:
    """The outbox is empty and the sink has every result."""
    with closing(sqlite3.connect(folder / "line.db")) as data:
        (unsent,) = data.execute("SELECT count(*) FROM outbox WHERE sent = 0").fetchone()
    broken = [f"{row.uid} never came" for row in rows if not got.get(row.uid)]
    broken += [f"{unsent} results are not sent"] if unsent else []
    return Outcome("the outbox is empty", len(rows), tuple(broken))
