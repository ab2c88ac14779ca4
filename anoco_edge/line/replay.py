"""Computes the verdict of an old part again, from what its row names: the stored picture, the
bundle by its hash, the generation of the product and the revision of the configuration.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.generations import read_generation
from anoco_edge.errors import AnocoError, BundleError, PictureError, StorageError, UsageError
from anoco_edge.images.decode import read_picture
from anoco_edge.line.config.station_config import CaptureTable, StationConfig
from anoco_edge.line.core.events import Opinion, PreparedProduct
from anoco_edge.line.judge.alignment import Pixels
from anoco_edge.line.judge.messages import CaptureSpec
from anoco_edge.line.judge.opinions import CaptureJudge, open_detector, settings_checksum
from anoco_edge.line.store.database import NAME
from anoco_edge.line.words.constants import Reason
from anoco_edge.pipeline.runtime_choice import RuntimeName
from anoco_edge.storage.hashes import sha256_bytes

TOLERANCE = 1e-4
"""By how much of itself a ratio may differ: the same as an energy between two scorers."""

State = Literal["same", "different", "not computed"]
_RANK: dict[State, int] = {"same": 0, "not computed": 1, "different": 2}


@dataclass(frozen=True)
class RecordedOpinion:
    """What the data base says about a capture; a late one came after the part was decided."""

    verdict: str
    reason: Reason
    ratio: float
    late: bool = False


@dataclass(frozen=True)
class CaptureReplay:
    """A capture with its recorded and its computed opinion; `problem` says what is missing."""

    number: int
    camera: str
    recorded: RecordedOpinion | None
    computed: Opinion | None = None
    problem: str = ""

    @property
    def state(self) -> State:
        """Whether verdict, reason and ratio are the same."""
        old, new = self.recorded, self.computed
        if old is None or new is None:
            return "not computed"
        near = abs(old.ratio - new.ratio) <= TOLERANCE * max(old.ratio, new.ratio)
        if old.late:  # reasons of late opinions are not recorded
            return "same" if near and old.verdict == new.verdict else "different"
        same = (old.verdict, old.reason) == (new.verdict, new.reason)
        return "same" if near and same else "different"


@dataclass(frozen=True)
class PartReplay:
    """An old part: what the line decided, and its captures computed again."""

    uid: str
    at: str
    config: str
    verdict: str
    reason: Reason
    captures: tuple[CaptureReplay, ...]

    @property
    def state(self) -> State:
        """The same only if every capture is; different if one is."""
        return max((capture.state for capture in self.captures), key=_RANK.__getitem__)


@dataclass(frozen=True)
class _CaptureRow:
    number: int
    camera: str
    counter: int | None
    verdict: str | None
    reason: int | None
    ratio: float | None
    bundle_sha256: str | None
    product: str | None
    generation: int | None
    picture: str | None


@dataclass(frozen=True)
class _PartRow:
    uid: str
    at: str
    accepted: int
    verdict: str | None
    reason: int | None
    product: int | None
    generation: int | None
    checksum: int | None
    config: str


def replay(folder: Path, base: Path, uid: str, *, engine: str = "auto") -> PartReplay:
    """Compute the verdict of a part again.

    `folder` holds the data base of the station; paths of the recorded configuration are relative to
    `base`, the folder of its station.toml. A capture that cannot be computed says why.

    >>> replay(Path("nowhere"), Path(), "press-3-1")
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: there is no data base nowhere/line.db; name the station.toml ...
    """
    with closing(_open(folder / NAME)) as data:
        part = _read_part(data, uid, folder / NAME)
        captures = _read_captures(data, part.uid)
        late = _read_late(data, part.uid)
        document = data.execute(
            "SELECT document FROM config WHERE revision = ?", (part.config,)
        ).fetchone()
    recorded = [_recorded(row, late.get(row.number)) for row in captures]
    try:
        judges = _open_judges(part, captures, _read_config(part, document), base)
    except AnocoError as error:
        done = [
            CaptureReplay(row.number, row.camera, old, problem=str(error))
            for row, old in zip(captures, recorded, strict=True)
        ]
    else:
        product = PreparedProduct(part.product or 0, part.generation or 0, part.checksum or 0)
        done = [
            _compute(folder, row, old, judge, product, engine)
            for row, old, judge in zip(captures, recorded, judges, strict=True)
        ]
    assert part.verdict is not None
    reason = Reason(part.reason or 0)
    return PartReplay(part.uid, part.at, part.config, part.verdict, reason, tuple(done))


@dataclass(frozen=True)
class StoredCapture:
    """A stored picture of a part, and the bundle and the generation that judged it."""

    bundle: Bundle
    product: Product
    spec: CaptureSpec
    picture: Path


def stored_capture(folder: Path, base: Path, uid: str, number: int) -> StoredCapture:
    """Find what judged a capture and its picture; what is missing is an error that says so.

    >>> stored_capture(Path("nowhere"), Path(), "press-3-1", 0)
    Traceback (most recent call last):
    anoco_edge.errors.UsageError: there is no data base nowhere/line.db; name the station.toml ...
    """
    with closing(_open(folder / NAME)) as data:
        part = _read_part(data, uid, folder / NAME)
        captures = _read_captures(data, part.uid)
        document = data.execute(
            "SELECT document FROM config WHERE revision = ?", (part.config,)
        ).fetchone()
    if not 0 <= number < len(captures):
        raise UsageError(f"part {uid} has no capture {number}", hint="captures count from 0")
    judge = _open_judges(part, captures, _read_config(part, document), base)[number]
    return StoredCapture(
        judge.bundle, judge.product, judge.spec, _picture(folder, captures[number])
    )


def stored_picture(folder: Path, uid: str, number: int) -> Path:
    """Return the path of the stored picture of a capture; what is missing is an error."""
    with closing(_open(folder / NAME)) as data:
        rows = {row.number: row for row in _read_captures(data, uid)}
    if number not in rows:
        raise UsageError(f"part {uid} has no capture {number}", hint="captures count from 0")
    return _picture(folder, rows[number])


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise UsageError(
            f"there is no data base {path}", hint="name the station.toml of the station"
        )
    return sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True, timeout=5.0)


def _read_part(data: sqlite3.Connection, uid: str, path: Path) -> _PartRow:
    names = "uid, at, accepted, verdict, reason, product, generation, checksum, config"
    try:
        found = data.execute(f"SELECT {names} FROM part WHERE uid = ?", (uid,)).fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"cannot read {path}: {error}", hint="check the file") from None
    if found is None:
        raise UsageError(f"{path} has no part {uid!r}", hint="take a uid of its table part")
    part = _PartRow(*found)
    if part.verdict is None:
        raise UsageError(f"part {uid} is not decided yet", hint="wait for its verdict")
    if not part.accepted:
        why = Reason(part.reason or 0).name
        raise UsageError(
            f"the trigger {uid} was refused ({why}), so there is no verdict to compute",
            hint="take the uid of an accepted part",
        )
    return part


def _read_captures(data: sqlite3.Connection, uid: str) -> list[_CaptureRow]:
    names = "number, camera, counter, verdict, reason, ratio, bundle_sha256, product, generation"
    rows = data.execute(
        f"SELECT {names}, picture FROM capture WHERE uid = ? ORDER BY number", (uid,)
    ).fetchall()
    if not rows:
        raise UsageError(
            f"part {uid} was interrupted by a restart and has no captures",
            hint="take the uid of a part with a picture",
        )
    return [_CaptureRow(*row) for row in rows]


def _read_late(data: sqlite3.Connection, uid: str) -> dict[int, RecordedOpinion]:
    rows = data.execute("SELECT number, verdict, ratio FROM late WHERE uid = ? ORDER BY id", (uid,))
    return {n: RecordedOpinion(verdict, Reason.NONE, r, late=True) for n, verdict, r in rows}


def _recorded(row: _CaptureRow, late: RecordedOpinion | None) -> RecordedOpinion | None:
    if row.verdict is None:
        return late
    return RecordedOpinion(row.verdict, Reason(row.reason or 0), row.ratio or 0.0)


def _read_config(part: _PartRow, found: tuple[str] | None) -> StationConfig:
    """Return the configuration of the part's revision, which must still have its hash."""
    name = f"configuration {part.config[:12]}"
    if found is None:
        raise StorageError(f"{name} is not in the data base", hint="the data base was replaced")
    values = json.loads(found[0])
    values.pop("page", None)  # which is no part of the revision
    if sha256_bytes(json.dumps(values, sort_keys=True).encode()) != part.config:
        raise StorageError(f"{name} is not what its hash says", hint="the data base was edited")
    try:
        return StationConfig.model_validate_json(found[0])
    except ValidationError as error:
        what = error.errors(include_url=False)[0]["msg"]
        raise StorageError(
            f"{name} cannot be read: {what}", hint="use the version of anoco-edge that wrote it"
        ) from None


@dataclass(frozen=True)
class _Judge:
    bundle: Bundle
    product: Product
    spec: CaptureSpec
    runtime: RuntimeName

    def judge(
        self, pixels: Pixels, prepared: PreparedProduct, capture: int, engine: str
    ) -> Opinion:
        """Judge a picture as the judge of a line does."""
        detector, _ = open_detector(self.bundle, self.product, engine, self.runtime)
        return CaptureJudge(detector, self.spec).judge(pixels, prepared, capture)


def _open_judges(
    part: _PartRow, rows: list[_CaptureRow], config: StationConfig, base: Path
) -> list[_Judge]:
    """Open the bundle and the generation that judged each capture; anything else is an error."""
    product = next((each for each in config.products if each.number == part.product), None)
    if product is None or len(product.captures) != len(rows):
        raise StorageError(
            f"part {part.uid} does not say which product judged it",
            hint="its judge was lost before the verdict",
        )
    pairs = zip(rows, product.captures, strict=True)
    judges = [_open_judge(row, capture, base, config.line.runtime) for row, capture in pairs]
    opened = [(judge.bundle, judge.product) for judge in judges]
    if settings_checksum(opened, part.config) != part.checksum:
        raise BundleError(
            f"generation {part.generation} is not the one that judged the part",
            hint="it was pruned and its number given again: bring back a copy of the bundle",
        )
    return judges


def _open_judge(
    row: _CaptureRow, capture: CaptureTable, base: Path, runtime: RuntimeName
) -> _Judge:
    spec = capture.spec(base)
    bundle = Bundle.open(spec.bundle)
    if row.product is None or row.generation is None:
        raise StorageError(
            f"the row of {row.camera} does not name what judged it",
            hint="its judge was lost before the verdict",
        )
    if bundle.manifest.checksum != row.bundle_sha256:
        raise BundleError(
            f"{bundle.path} was replaced: the part was judged by {str(row.bundle_sha256)[:12]}, "
            f"this is {bundle.manifest.checksum[:12]}",
            hint="bring back a copy of the old bundle",
        )
    product = read_generation(bundle, row.product, row.generation)
    return _Judge(bundle, product, spec, runtime)


def _compute(
    folder: Path,
    row: _CaptureRow,
    recorded: RecordedOpinion | None,
    judge: _Judge,
    product: PreparedProduct,
    engine: str,
) -> CaptureReplay:
    try:
        pixels = read_picture(_picture(folder, row))
        opinion = judge.judge(pixels, product, row.number, engine)
    except AnocoError as error:
        return CaptureReplay(row.number, row.camera, recorded, problem=str(error))
    problem = "" if recorded else "the part was decided before the judge had an opinion"
    return CaptureReplay(row.number, row.camera, recorded, opinion, problem)


def _picture(folder: Path, row: _CaptureRow) -> Path:
    if row.counter is None:
        raise PictureError("no picture was taken", hint="there is nothing to compute")
    if row.picture is None:
        raise PictureError(
            "its picture was not kept, or was deleted since",
            hint="see keep_good_every, days and max_megabytes in [store]",
        )
    path = folder / row.picture
    if not path.is_file():
        raise PictureError(f"its picture {path} is gone", hint="bring it back from a backup")
    return path
