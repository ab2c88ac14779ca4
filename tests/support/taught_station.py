"""A station whose product was taught and calibrated, with parts that its judge decided."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from station_page import page_config
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge import Bundle, Detector
from anoco_edge.line.config.station_config import StationConfig
from anoco_edge.line.core.effects import CaptureRecord, FrameKey, PartRecord
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.demo_station import free_port
from anoco_edge.line.judge.opinions import judge_picture, settings_checksum
from anoco_edge.line.store.database import open_database
from anoco_edge.line.store.rows import CaptureOrigin, PartRow, PictureFile, RowWriter
from anoco_edge.line.words.constants import Reason
from anoco_edge.station.database import Database
from anoco_edge.station.jobs.tasks import Tasks
from anoco_edge.station.jobs.worker_messages import WorkerSetup
from anoco_edge.station.web.services import Services, open_services
from anoco_edge.teaching import NewPicture, Teacher

ENGINE = "onnxruntime"


def defective(seed: int) -> np.ndarray:
    """A part with a bright scratch."""
    picture = textured_picture(seed).copy()
    picture[30:46, 40:56] = np.random.default_rng(seed).integers(0, 256, (16, 16, 3))
    return picture


@dataclass(frozen=True)
class TaughtStation:
    """The folder of station.toml, its configuration and its bundle."""

    base: Path
    config: StationConfig

    @property
    def folder(self) -> Path:
        return self.base / "press-3"

    @property
    def bundle(self) -> Bundle:
        return Bundle.open(self.base / "line.anoco")

    def uid(self, number: int) -> str:
        return f"press-3-1-{number:06d}"

    def setup(self) -> WorkerSetup:
        return WorkerSetup(
            config=self.config.model_dump_json(),
            base=str(self.base),
            folder=str(self.folder),
            engine=ENGINE,
        )

    def tasks(self) -> Tasks:
        return Tasks(self.setup())

    def services(self, database: Database, **options: object) -> Services:
        return open_services(
            database, self.config, self.base, self.folder, engine=ENGINE, **options
        )  # type: ignore[arg-type]

    def judge(self, first: int, pictures: list[np.ndarray]) -> None:
        """Judge pictures as the line does and store them with their rows."""
        bundle = self.bundle
        detector = Detector.open(bundle, engine=ENGINE)
        checksum = settings_checksum([(bundle, detector.product)], self.config.revision)
        product = PreparedProduct(1, detector.product.generation, checksum)
        origin = CaptureOrigin(
            "line.anoco", bundle.manifest.checksum, detector.product.name, product.generation
        )
        writer = RowWriter(self.config.revision)
        with closing(open_database(self.folder, print)) as data, data:
            data.execute("BEGIN")
            values = (self.config.revision, "now", self.config.model_dump_json())
            data.execute("INSERT OR IGNORE INTO config VALUES (?,?,?)", values)
            for number, pixels in enumerate(pictures, first):
                opinion = judge_picture(detector, pixels, product, 0)
                record = PartRecord(
                    self.uid(number),
                    number,
                    f"W{number}",
                    "",
                    accepted=True,
                    trigger_at=0,
                    decided_at=9,
                    verdict=opinion.verdict,
                    reason=Reason.NONE,
                    ratio=opinion.ratio,
                    product=product,
                    captures=(CaptureRecord("top", FrameKey("top", number), 5, 6, opinion),),
                )
                path = f"pictures/press-3-1/{record.uid}-0.png"
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(self.folder / path, compress_level=1)
                writer.write(data, PartRow(record, (origin,)))
                writer.write(data, PictureFile(record.uid, 0, path, 1))


def make_taught_station(base: Path, *, calibrate: int = 12) -> TaughtStation:
    """Teach four parts, calibrate, and judge ten good parts and two defects (10 and 11)."""
    made = TaughtStation(base, page_config(free_port()))
    bundle = make_tiny_bundle(base / "line.anoco")
    teacher = Teacher.open(bundle, ENGINE)
    teacher.enroll([NewPicture.from_array(f"r{k}.png", textured_picture(k)) for k in range(4)])
    if calibrate:
        good = [
            NewPicture.from_array(f"c{k}.png", textured_picture(100 + k)) for k in range(calibrate)
        ]
        teacher.calibrate(good, false_reject=0.2, accept_fewer=True)
    made.judge(0, [textured_picture(200 + k) for k in range(10)] + [defective(1), defective(2)])
    Database(made.folder).close()
    return made
