"""What the worker computes: explanations, dry runs and changes, on a real bundle."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from taught_station import TaughtStation, make_taught_station
from tiny_bundle import textured_picture

from anoco_edge.bundle.generations import read_generation
from anoco_edge.errors import ConflictError, PictureError, StorageError, UsageError
from anoco_edge.station.jobs.job_models import (
    AddReferences,
    Calibrate,
    Change,
    CommitRequest,
    DryRunRequest,
    ExplanationRequest,
    PartPicture,
    RegionChange,
    RemoveReferences,
    ThresholdChange,
    Undo,
    UploadedPicture,
)
from anoco_edge.station.jobs.worker import JobCancelledError
from anoco_edge.station.products.changes import ChangeOutcome
from anoco_edge.station.products.explanation import Explanation
from anoco_edge.station.products.past_parts import DryRun
from anoco_edge.station.products.uploads import Uploads
from anoco_edge.storage.beneath import Directory


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TaughtStation:
    return make_taught_station(tmp_path_factory.mktemp("taught"))


@pytest.fixture
def station(made: TaughtStation, tmp_path: Path) -> TaughtStation:
    """A copy that a test may change."""
    shutil.copytree(made.base, tmp_path / "copy")
    return replace(made, base=tmp_path / "copy")


def silent(_progress: float, _note: str) -> None:
    pass


def dry_run(station: TaughtStation, change: Change, last: int = 1000) -> DryRun:
    request = DryRunRequest(product=1, capture=0, expected=2, change=change, last=last)
    found = station.tasks().do(request, silent)
    assert isinstance(found, DryRun)
    return found


def commit(station: TaughtStation, change: Change, expected: int = 2) -> ChangeOutcome:
    request = CommitRequest(product=1, capture=0, expected=expected, change=change)
    found = station.tasks().do(request, silent)
    assert isinstance(found, ChangeOutcome)
    return found


def test_an_explanation_is_the_verdict_of_the_line_again(made: TaughtStation) -> None:
    tasks = made.tasks()
    request = ExplanationRequest(uid=made.uid(10), number=0)
    found = tasks.do(request, silent)
    assert isinstance(found, Explanation)
    part = tasks.history.part(made.uid(10))
    assert part is not None and part.ratio is not None
    assert found.verdict == part.verdict == "anomalous"
    assert found.score / (found.threshold or 0) == pytest.approx(part.ratio)
    (region, *_) = found.regions
    assert region.left < 48 < region.right and region.top < 38 < region.bottom
    peak = max(v for row in found.grid.ratio for v in row if v is not None)
    assert peak == pytest.approx(part.ratio, rel=1e-3) and len(found.grid.ratio) == 4
    (first, *_) = found.references
    digests = [r.pixels for r in made.bundle.product().references]
    assert first.digest in digests and first.ratio == pytest.approx(part.ratio, rel=1e-3)
    nearest = found.nearest.index[first.row][first.column]
    assert nearest is not None and found.nearest.digests[nearest] == first.digest


def test_an_explanation_uses_the_generation_that_judged(station: TaughtStation) -> None:
    before = station.tasks().do(ExplanationRequest(uid=station.uid(3), number=0), silent)
    commit(station, ThresholdChange(value=1e-6))
    after = station.tasks().do(ExplanationRequest(uid=station.uid(3), number=0), silent)
    assert before == after
    with pytest.raises(UsageError, match="has no capture 7"):
        station.tasks().do(ExplanationRequest(uid=station.uid(3), number=7), silent)


def test_a_threshold_is_tried_by_arithmetic_and_says_what_the_judge_would(
    station: TaughtStation,
) -> None:
    product = station.bundle.product()
    assert product.threshold.value is not None
    value = product.threshold.value * 0.5
    found = dry_run(station, ThresholdChange(value=value))
    assert (found.method, found.parts, found.compared) == ("arithmetic", 12, 12)
    assert found.before["anomalous"] >= 2
    commit(station, ThresholdChange(value=value))
    pictures = [textured_picture(200 + k) for k in range(10)]
    station.judge(100, pictures)
    tasks = station.tasks()
    for number in range(10):
        old, new = (
            tasks.history.part(station.uid(number)),
            tasks.history.part(station.uid(100 + number)),
        )
        assert old is not None and new is not None
        flipped = old.verdict != new.verdict
        assert flipped == (old.uid in [flip.uid for flip in found.flips])
    assert found.outcome.threshold == value and found.outcome.threshold_kind == "manual"
    assert read_generation(station.bundle, product.name, 2).threshold == product.threshold


def test_a_threshold_says_nothing_about_parts_of_other_references(station: TaughtStation) -> None:
    digest = station.bundle.product().references[0].pixels
    commit(station, RemoveReferences(references=[digest]))
    request = DryRunRequest(
        product=1, capture=0, expected=3, change=ThresholdChange(value=0.5), last=1000
    )
    found = station.tasks().do(request, silent)
    assert isinstance(found, DryRun) and found.compared == 0
    assert [(each.reason, each.parts) for each in found.left_out] == [
        ("it was judged by other references or settings", 12)
    ]


def test_a_reject_that_was_good_is_tried_as_a_reference_and_then_becomes_one(
    station: TaughtStation,
) -> None:
    change = AddReferences(pictures=[PartPicture(part=station.uid(10))])
    found = dry_run(station, change)
    assert found.method == "inspection" and found.compared == 12 and found.outcome.references == 5
    flipped = {flip.uid: flip for flip in found.flips}
    assert flipped[station.uid(10)].new_verdict == "good"
    assert flipped[station.uid(10)].new_ratio < 0.01, "a part that is a reference is like itself"
    assert station.bundle.product().generation == 2, "a dry run changes nothing"
    done = commit(station, change)
    assert (done.generation, done.before, done.references) == (3, 2, 5)
    assert commit(station, Undo(), expected=3).generation == 2
    assert len(station.bundle.product().references) == 4


def test_parts_without_a_picture_are_counted_as_left_out(station: TaughtStation) -> None:
    (station.folder / "pictures/press-3-1" / f"{station.uid(4)}-0.png").unlink()
    change = RemoveReferences(references=[station.bundle.product().references[1].pixels])
    found = dry_run(station, change, last=9)
    assert (found.parts, found.compared) == (9, 8)
    assert "1 of the last 9 say nothing" in found.words
    with pytest.raises(UsageError, match="has no reference"):
        dry_run(station, RemoveReferences(references=["ab" * 32]))


def test_a_region_and_a_calibration(station: TaughtStation) -> None:
    region = RegionChange(points=[(0, 0), (30, 0), (30, 80), (0, 80)])
    found = dry_run(station, region)
    flips = {flip.uid for flip in found.flips}
    assert station.uid(10) in flips, "its defect lies outside"
    good = [PartPicture(part=station.uid(n)) for n in range(10)]
    calibrated = dry_run(station, Calibrate(pictures=good, false_reject=0.1, accept_fewer=True))
    assert calibrated.outcome.promise.parts > 0
    assert calibrated.outcome.more_for_one_percent == 99 - calibrated.outcome.promise.parts


def test_of_two_engineers_the_second_is_told(station: TaughtStation) -> None:
    commit(station, ThresholdChange(value=0.5))
    for change in (
        ThresholdChange(value=0.6),
        Undo(),
        AddReferences(pictures=[PartPicture(part=station.uid(10))]),
    ):
        with pytest.raises(ConflictError, match="is at generation 3, the change was made for 2"):
            commit(station, change)
    assert station.bundle.product().threshold.value == 0.5


def test_a_new_product_is_taught_from_uploads(station: TaughtStation) -> None:
    shutil.rmtree(station.base / "line.anoco/products")
    uploads = Uploads(station.folder)
    paths = sorted((station.folder / "pictures/press-3-1").glob("*.png"))[:4]
    sources = [UploadedPicture(upload=uploads.add(path.read_bytes(), "a.png")) for path in paths]
    done = commit(station, AddReferences(pictures=list(sources)), expected=0)
    assert (done.generation, done.before, done.references) == (1, None, 4)
    assert done.threshold_kind == "provisional" and done.more_for_one_percent == 99
    assert "Provisional" in done.promise.evidence and "Nothing is promised" in done.promise.words
    with pytest.raises(ConflictError):
        commit(station, AddReferences(pictures=list(sources)), expected=0)


def test_a_full_disk_leaves_the_generation_as_it_was(
    station: TaughtStation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as change:
        change.setattr(Directory, "_put", full)
        with pytest.raises(StorageError, match="the disk is full"):
            commit(station, AddReferences(pictures=[PartPicture(part=station.uid(10))]))
        with pytest.raises(StorageError, match="the disk is full"):
            Uploads(station.folder).add(
                (station.folder / f"pictures/press-3-1/{station.uid(1)}-0.png").read_bytes(), "a"
            )
    assert station.bundle.product().generation == 2
    list(station.bundle.verify())


def test_a_cancelled_job_changes_nothing(station: TaughtStation) -> None:
    def cancel(progress: float, _note: str) -> None:
        if progress > 0:
            raise JobCancelledError

    request = CommitRequest(
        product=1,
        capture=0,
        expected=2,
        change=AddReferences(pictures=[PartPicture(part=station.uid(10))]),
    )
    with pytest.raises(JobCancelledError):
        station.tasks().do(request, cancel)
    assert station.bundle.product().generation == 2


def test_a_picture_that_is_gone(station: TaughtStation) -> None:
    shutil.rmtree(station.folder / "pictures")
    with pytest.raises(PictureError, match="is gone"):
        station.tasks().do(ExplanationRequest(uid=station.uid(1), number=0), silent)
    assert np.isfinite(dry_run(station, ThresholdChange(value=1.0)).outcome.threshold or 0)
