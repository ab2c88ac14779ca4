"""Rows of results.jsonl survive writing and reading, also those of earlier versions."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import defective_picture, make_line, rows_of, run_cli
from paths import ROOT
from PIL import Image
from result_rows import frame, result_row

from anoco_edge import Detector
from anoco_edge.drift import DriftReading
from anoco_edge.errors import PictureError, UsageError
from anoco_edge.results.row_reader import read_results, row_from_json
from anoco_edge.results.rows import SCHEMA_VERSION, FailedRow, ResultRow
from anoco_edge.sinks.folder import ResultFolder

DATA = Path(__file__).parent / "data"
BEFORE = DATA / "results-without-schema.jsonl"
SCHEMAS = ROOT / "docs" / "schemas"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write parts/ with three good parts, a defective one and a file that is not a picture."""
    folder = make_line(tmp_path_factory.mktemp("template"))
    Image.fromarray(defective_picture()).save(folder / "parts" / "scratched.png")
    (folder / "parts" / "torn.png").write_text("no picture")
    return folder


# --- written before rows had a schema version -----------------------------------------------------


def test_rows_without_a_schema_version_are_read_field_by_field() -> None:
    rows = list(read_results(BEFORE))
    lines = [json.loads(line) for line in BEFORE.read_text().splitlines()]
    assert len(rows) == len(lines) == 12
    for row, line in zip(rows, lines, strict=True):
        assert {**line, "schema": SCHEMA_VERSION} == row.to_json()
    kinds = {row.verdict for row in rows}
    assert kinds == {"good", "anomalous", "uncalibrated", None}
    assert any(row.drift for row in rows)
    assert any(row.overlay_error for row in rows if isinstance(row, ResultRow))


def test_a_name_that_is_not_utf8_keeps_its_path() -> None:
    first = next(read_results(BEFORE))
    assert isinstance(first, ResultRow)
    assert first.source == r"parts/caf\udce9.png"
    assert first.picture == "/line3/parts/caf\udce9.png"


def test_the_csv_of_these_rows_is_the_same_as_then(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    for row in list(read_results(BEFORE))[:6]:
        folder.put(row)
    folder.close()
    then = DATA / "results-without-schema.csv"
    assert (tmp_path / "results.csv").read_bytes() == then.read_bytes()


def test_a_rejected_frame_of_an_earlier_version_becomes_a_reference(here: Path) -> None:
    old = json.loads(BEFORE.read_text().splitlines()[4])
    assert "schema" not in old
    old["picture"] = str(Path("parts/scratched.png").absolute())
    Path("old.jsonl").write_text(json.dumps(old) + "\n")
    ran = run_cli("enroll", "line.anoco", "--from-results", "old.jsonl", "--id", 4, "--json")
    assert ran.code == 0 and ran.json["added"] == ["scratched.png"]


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        result_row(3),
        result_row(4, 2.5, "anomalous", picture="frames/4.png", overlay="overlays/4.jpg"),
        result_row(5, threshold=None, ratio=None, verdict="uncalibrated", evidence=None),
        result_row(6, drift=DriftReading("higher", 1.0), overlay_error="no reference"),
        FailedRow(7, "a.png", "a.png is empty", DriftReading("steady", 0.25)),
    ],
)
def test_a_row_is_read_as_it_was_written(row: ResultRow | FailedRow) -> None:
    assert row_from_json(json.loads(json.dumps(row.to_json()))) == row


def changed(**fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict(result_row(0, 2.0, "anomalous").to_json())
    for name, value in fields.items():
        if value is ...:
            del row[name]
        else:
            row[name] = value
    return row


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], "row", 3, {}, {"id": 0}),
        changed(id=True),
        changed(id="0"),
        changed(source=...),
        changed(score=None),
        changed(score=float("nan")),
        changed(score=10**400),
        changed(ratio=False),
        changed(verdict="fine"),
        changed(verdict=["good"]),
        changed(regions={}),
        changed(regions=[{"box": [1, 2, 3], "area": 1, "peak": 1, "patch": [0, 0]}]),
        changed(evidence=[{"reference": "a.png", "similarity": 0.5}]),
        changed(timings={"total": "1 ms"}),
        changed(drift={"state": "fast", "level": 0}),
        changed(picture=3),
        changed(schema="1"),
    ],
)
def test_what_is_not_a_row_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        row_from_json(value)
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(value) + "\n")
    with pytest.raises(UsageError, match=r"line 1 of .* is not a result"):
        list(read_results(path))


def test_unknown_fields_are_ignored_and_a_later_schema_is_refused(tmp_path: Path) -> None:
    assert row_from_json(changed(lane=3)) == row_from_json(changed())
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(changed(schema=SCHEMA_VERSION + 1)))
    with pytest.raises(UsageError, match=r"a later version.*update anoco-edge"):
        list(read_results(path))


# --- from an inspection ---------------------------------------------------------------------------


def test_the_row_of_an_inspection_says_what_the_inspection_says(here: Path) -> None:
    inspection = Detector.open("line.anoco").inspect("parts/scratched.png")
    row = ResultRow.from_inspection(inspection, 7)
    told = row.to_json()
    assert told["id"] == 7 and told["verdict"] == "anomalous" and told["regions"]
    assert {name: told[name] for name in inspection.to_row()} == inspection.to_row()  # type: ignore[literal-required]


def test_the_evidence_of_a_row_and_its_overlay_is_looked_up_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.pipeline.evidence import EvidenceLookup
    from anoco_edge.results.runner import inspect_group
    from anoco_edge.sources.files import picture_frame

    found: list[int] = []
    lookup = EvidenceLookup.evidence

    def counting(self: Any, *args: Any) -> Any:
        found.append(1)
        return lookup(self, *args)

    monkeypatch.setattr(EvidenceLookup, "evidence", counting)
    frames = [picture_frame("parts/scratched.png", 0)]
    (one,) = inspect_group(Detector.open("line.anoco"), frames, 0)
    assert one.overlay is not None
    assert one.overlay.image() is one.overlay.image(), "it is drawn once"
    assert len(found) == 1


def test_an_error_names_its_picture_once() -> None:
    told = PictureError("a.png is empty", hint="take it again")
    assert FailedRow.from_error(0, "a.png", told).error == "a.png is empty; take it again"
    assert FailedRow.from_error(0, "b\udce9.png", told).error.startswith(r"b\udce9.png: a.png is")


# --- the schemas in docs --------------------------------------------------------------------------


def generated() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("generate", SCHEMAS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.schemas()
    return found


def test_the_schemas_in_docs_are_those_of_the_code() -> None:
    for name, schema in generated().items():
        written = json.loads((SCHEMAS / name).read_text())
        assert written == schema, f"run: python docs/schemas/generate.py ({name} differs)"
    assert {path.name for path in SCHEMAS.glob("*.json")} == set(generated())


def test_what_a_run_writes_fits_the_schemas(here: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    def validator(name: str) -> Any:
        return jsonschema.Draft202012Validator(json.loads((SCHEMAS / name).read_text()))

    assert run_cli("infer", "line.anoco", "parts", "--out", "out", "--save", "all").code == 1
    rows = rows_of(Path("out"))
    assert {row["verdict"] for row in rows} == {"good", "anomalous", None}
    for row in rows:
        validator("results.schema.json").validate(row)
    manifest = json.loads(Path("line.anoco/manifest.json").read_text())
    validator("manifest.schema.json").validate(manifest)
    product = json.loads(Path("line.anoco/products/default/product.json").read_text())
    validator("product.schema.json").validate(product)
    for broken in ({**rows[0], "score": "high"}, {**rows[0], "verdict": "fine"}):
        assert not validator("results.schema.json").is_valid(broken)
    assert not validator("product.schema.json").is_valid({**product, "generation": "first"})


# --- thumbnails -----------------------------------------------------------------------------------


def test_no_thumbnail_is_made_of_a_live_frame_that_is_not_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anoco_edge.results import RunInfo
    from anoco_edge.results.runner import inspect_group
    from anoco_edge.sinks import folder as module
    from anoco_edge.sources.files import picture_frame

    made: list[str] = []
    monkeypatch.setattr(module, "thumbnail", lambda rgb: made.append("one") or b"jpeg")
    detector = Detector.open("line.anoco")
    paths = ["parts/good0.png", "parts/scratched.png"]
    for live, count in ((True, 1), (False, 2)):
        made.clear()
        folder = ResultFolder(Path("out"), RunInfo(live=live))
        for one in inspect_group(detector, [picture_frame(path, 0) for path in paths], 0):
            folder.write(one.row, one.frame, one.overlay)
        folder.close()
        assert len(made) == count, "of a live source only the rejected frame is kept"


def test_a_frame_that_was_kept_is_named_by_the_row_that_comes_back(tmp_path: Path) -> None:
    class Drawing:
        def jpeg(self) -> bytes:
            return b"jpeg"

    folder = ResultFolder(tmp_path)
    row = replace(result_row(1, 2.0, "anomalous"), source="clip.avi#1")
    kept = folder.write(row, frame(), Drawing())  # type: ignore[arg-type]
    assert isinstance(kept, ResultRow)
    assert (kept.overlay, kept.picture) == (
        "overlays/000001-clip.avi-1.jpg",
        "frames/000001-clip.avi-1.png",
    )
    assert (tmp_path / kept.picture).is_file() and (tmp_path / kept.overlay).is_file()
    folder.close()
