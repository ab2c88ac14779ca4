"""`anoco-edge replay`: an old verdict is computed again, or one line says what is missing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import fails, ok, run_cli
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture, write_good_pictures

from anoco_edge import Bundle
from anoco_edge.line.config.station_config import EXAMPLE, StationConfig, parse_config
from anoco_edge.line.core.effects import CaptureRecord, FrameKey, PartRecord, RecordLate
from anoco_edge.line.core.events import Opinion, PreparedProduct
from anoco_edge.line.judge.opinions import judge_picture, open_detector, settings_checksum
from anoco_edge.line.store.database import open_database
from anoco_edge.line.store.rows import CaptureOrigin, PartRow, PictureFile, RowWriter
from anoco_edge.line.words.constants import Reason

TEXT = EXAMPLE.replace("rendered:washer", "folder:good")
CONFIG = parse_config(TEXT, "station.toml")
UID = "press-3-1-000001"


@dataclass(frozen=True)
class Place:
    """The folder of a station with one judged part."""

    folder: Path
    opinion: Opinion
    product: PreparedProduct

    def replay(self, *options: str) -> Any:
        return run_cli("replay", UID, "--station", self.folder / "station.toml", *options)

    def line(self) -> str:
        """The line about the capture, which must say that nothing was compared."""
        ran = self.replay()
        assert ran.code == 1, ran.out + ran.err
        assert ran.out.splitlines()[-1] == "The verdict cannot be compared."
        return str(ran.out.splitlines()[1])

    def execute(self, statement: str) -> None:
        data = sqlite3.connect(self.folder / "press-3/line.db")
        with data:
            assert data.execute(statement).rowcount == 1
        data.close()


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A part that was judged as the judge does, with its rows and its picture."""
    folder = tmp_path_factory.mktemp("replay")
    make_tiny_bundle(folder / "line.anoco")
    ok("enroll", folder / "line.anoco", *write_good_pictures(folder / "good", 3))
    (folder / "station.toml").write_text(TEXT)
    bundle = Bundle.open(folder / "line.anoco")
    detector, _ = open_detector(bundle, None)
    checksum = settings_checksum([(bundle, detector.product)], CONFIG.revision)
    product = PreparedProduct(1, detector.product.generation, checksum)
    pixels = textured_picture(40)
    opinion = judge_picture(detector, pixels, product, 0)
    assert opinion.verdict != "no-verdict" and opinion.ratio > 0
    write_rows(folder, opinion, product)
    picture = folder / "press-3/pictures" / f"{UID}-0.png"
    picture.parent.mkdir()
    Image.fromarray(pixels).save(picture)
    return Place(folder, opinion, product)


def write_rows(
    folder: Path,
    opinion: Opinion | None,
    product: PreparedProduct,
    config: StationConfig = CONFIG,
) -> None:
    capture = CaptureRecord("top", FrameKey("top", 1), 5, 6, opinion)
    verdict = opinion.verdict if opinion else "no-verdict"
    reason = Reason.NONE if opinion else Reason.DEADLINE
    record = PartRecord(UID, 1, "", "", True, 0, 9, verdict, reason, 0.5, product, (capture,))
    bundle = Bundle.open(folder / "line.anoco")
    origin = CaptureOrigin(
        "line.anoco", bundle.manifest.checksum, bundle.products()[0], product.generation
    )
    data = open_database(folder / "press-3", print)
    values = (config.revision, "now", config.model_dump_json())
    data.execute("INSERT OR IGNORE INTO config VALUES (?,?,?)", values)
    writer = RowWriter(config.revision)
    writer.write(data, PartRow(record, (origin,)))
    writer.write(data, PictureFile(UID, 0, f"pictures/{UID}-0.png", 1))
    if opinion is None:
        writer.write(data, RecordLate(UID, 0, Opinion("good", product, ratio=0.5), 99))
    data.close()


@pytest.fixture
def place(judged: Place, tmp_path: Path) -> Place:
    """A copy that a test may change."""
    shutil.copytree(judged.folder, tmp_path / "station")
    return replace(judged, folder=tmp_path / "station")


def test_the_same_verdict(place: Place) -> None:
    ran = place.replay()
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.splitlines()[-1] == "The verdict is the same."
    found = place.replay("--json").json
    (capture,) = found["captures"]
    assert found["state"] == "same" and found["config"] == CONFIG.revision
    assert capture["recorded"]["ratio"] == capture["computed"]["ratio"] == place.opinion.ratio


def test_a_generation_that_is_not_the_current_one_any_more(place: Place) -> None:
    more = write_good_pictures(place.folder / "more", 1, seed=50)
    ok("enroll", place.folder / "line.anoco", *more)
    assert place.replay("--json").json["state"] == "same"
    ok("references", "prune", place.folder / "line.anoco")
    assert "generation 1 of product 'default' is not in" in place.line()


def test_a_generation_whose_number_was_given_again(place: Place) -> None:
    place.execute(f"UPDATE part SET checksum = {place.product.checksum ^ 1}")
    assert "generation 1 is not the one that judged the part" in place.line()


@pytest.mark.parametrize(
    "change", ["UPDATE capture SET ratio = ratio * 1.001", "UPDATE capture SET verdict = 'x'"]
)
def test_another_verdict(place: Place, change: str) -> None:
    place.execute(change)
    ran = place.replay()
    assert ran.code == 5 and ran.out.splitlines()[-1] == "The verdict is another one."
    assert place.replay("--json").code == 5


def test_a_picture_that_is_gone_or_was_not_kept(place: Place) -> None:
    (place.folder / "press-3/pictures" / f"{UID}-0.png").unlink()
    assert "png is gone" in place.line()
    place.execute("UPDATE capture SET picture = NULL")
    assert "its picture was not kept, or was deleted since" in place.line()
    place.execute("UPDATE capture SET counter = NULL")
    assert "no picture was taken" in place.line()


def test_a_bundle_that_was_replaced_or_is_gone(place: Place) -> None:
    shutil.rmtree(place.folder / "line.anoco")
    assert "there is no bundle at" in place.line()
    make_tiny_bundle(place.folder / "line.anoco", dim=4)
    assert "line.anoco was replaced: the part was judged by" in place.line()


def test_a_configuration_that_is_not_the_recorded_one(place: Place) -> None:
    (place.folder / "station.toml").write_text(TEXT.replace("7700", "7701"))
    assert place.replay().code == 0, "the recorded revision counts, not today's file"
    data = sqlite3.connect(place.folder / "press-3/line.db")
    (text,) = data.execute("SELECT document FROM config").fetchone()
    data.close()
    edited = json.dumps(json.loads(text) | {"webhook": {"url": "http://a"}})
    place.execute(f"UPDATE config SET document = '{edited}'")
    assert "is not what its hash says" in place.line()
    place.execute("DELETE FROM config")
    assert "is not in the data base" in place.line()


def test_a_part_without_a_verdict_and_its_late_one(place: Place) -> None:
    (place.folder / "press-3/line.db").unlink()
    write_rows(place.folder, None, place.product)
    ran = place.replay()
    assert ran.code == 5 and "recorded late good 0.5" in ran.out and "(DEADLINE)" in ran.out
    place.execute(f"UPDATE late SET ratio = {place.opinion.ratio!r}")
    place.execute(f"UPDATE late SET verdict = '{place.opinion.verdict}'")
    assert place.replay().code == 0
    place.execute("DELETE FROM late")
    assert "decided before the judge had an opinion; it is" in place.line()


def test_the_alignment_of_the_recorded_configuration_is_used(place: Place) -> None:
    (place.folder / "press-3/line.db").unlink()
    align = "align = { boxes = [[20, 20, 30, 30]], search = 8, min_score = 1.0 }"
    config = parse_config(TEXT.replace('"line.anoco" }', f'"line.anoco", {align} }}'), "a")
    bundle = Bundle.open(place.folder / "line.anoco")
    checksum = settings_checksum([(bundle, bundle.product())], config.revision)
    product = replace(place.product, checksum=checksum)
    write_rows(place.folder, Opinion("no-verdict", product, Reason.NOT_FOUND), product, config)
    ran = place.replay()
    assert ran.code == 0 and "computed no-verdict (NOT_FOUND): same" in ran.out


def test_what_cannot_be_replayed(place: Place) -> None:
    toml = place.folder / "station.toml"
    assert "has no part 'x'" in fails(2, "replay", "x", "--station", toml)
    place.execute("UPDATE part SET accepted = 0, reason = 40")
    assert "was refused (BUSY)" in fails(2, "replay", UID, "--station", toml)
    place.execute("UPDATE part SET verdict = NULL")
    assert "is not decided yet" in fails(2, "replay", UID, "--station", toml)
    shutil.rmtree(place.folder / "press-3")
    assert "there is no data base" in fails(2, "replay", UID, "--station", toml)
    assert not (place.folder / "press-3").exists(), "nothing is created"
