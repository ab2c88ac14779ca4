"""A bank is thinned to its most different patches, whose origin and threshold stay right."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import fails, ok, refused, run_cli
from numpy.typing import NDArray
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bank, Bundle, Product
from anoco_edge.detector import Detector
from anoco_edge.engines import open_engine
from anoco_edge.errors import ScoringError, StorageError, UsageError
from anoco_edge.images.preprocess import prepare
from anoco_edge.pipeline.augmentation import IDENTITY, warp
from anoco_edge.scoring import score_patches
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings
from anoco_edge.teaching.coreset import thin
from anoco_edge.teaching.provisional_threshold import MARGIN


def part(seed: int) -> NewPicture:
    return NewPicture.from_array(f"frame{seed}", textured_picture(seed))


def parts(*seeds: int) -> list[NewPicture]:
    return [part(seed) for seed in seeds]


def at_most(patches: int, **fields: Any) -> Settings:
    return Settings(fields, max_patches=patches)


@pytest.fixture
def teacher(tiny_bundle: Bundle) -> Teacher:
    return Teacher.open(tiny_bundle.path)


def features_of(bundle: Bundle, rgb: NDArray[np.uint8], view: Any = IDENTITY) -> Any:
    """Return the features of every patch of a view, in float16 like the bank: [rows, cols, dim]."""
    contract = bundle.manifest.input
    pixels, _ = prepare(rgb, contract)
    found = open_engine("auto", bundle).features(warp(pixels, view, contract.fill)[None])[0]
    return found.reshape(contract.rows, contract.cols, -1).astype(np.float16)


def check_rows(bundle: Bundle, product: Product, pictures: Sequence[NewPicture]) -> Bank:
    """Check that every row is the engine's feature at the place that its columns name."""
    bank = bundle.bank(product)
    for number, picture in enumerate(pictures):
        views = (IDENTITY, *product.views, *product.references[number].views)
        for k in np.unique(bank.view[bank.reference == number]):
            mine = (bank.reference == number) & (bank.view == k)
            expected = features_of(bundle, picture.rgb, views[int(k)])
            np.testing.assert_array_equal(
                bank.references.features[mine], expected[bank.row[mine], bank.col[mine]]
            )
    norms = np.linalg.norm(bank.references.features.astype(np.float64), axis=1)
    np.testing.assert_allclose(bank.references.norms, norms, rtol=1e-6)
    return bank


def bank_hash(product: Product) -> str:
    assert product.bank is not None
    return product.bank.sha256


# ---- what stays


def test_the_bank_is_what_thinning_all_patches_leaves(teacher: Teacher) -> None:
    whole = teacher.bundle.bank(teacher.enroll(parts(1, 2, 3), "whole").product)
    product = teacher.enroll(parts(1, 2, 3), "thinned", at_most(20)).product
    bank = check_rows(teacher.bundle, product, parts(1, 2, 3))
    chosen = thin(whole.references.features, 20, seed=0)
    assert len(bank) == 20
    for name in ("reference", "view", "row", "col"):
        np.testing.assert_array_equal(getattr(bank, name), getattr(whole, name)[chosen.rows])
    assert product.coreset is not None
    found = product.coreset
    assert (found.max_patches, found.seed) == (20, 0)
    assert (found.considered, found.duplicates) == (48, 0)
    assert found.radius == chosen.radius > 0


def test_copies_are_counted_and_left_out_first(teacher: Teacher) -> None:
    """The left half of the second picture is that of the first."""
    first, second = textured_picture(1, 64, 64), textured_picture(2, 64, 64)
    second[:, :32] = first[:, :32]
    pictures = [NewPicture.from_array("a", first), NewPicture.from_array("b", second)]
    product = teacher.enroll(pictures, settings=at_most(1000)).product
    bank = check_rows(teacher.bundle, product, pictures)
    assert product.coreset is not None
    assert (product.coreset.considered, product.coreset.duplicates) == (32, 8)
    assert product.coreset.radius == 0 and len(bank) == 24 and product.dropped_patches == 0
    assert (bank.col[bank.reference == 1] >= 2).all()


def test_a_fresh_bundle_gets_the_same_bank(teacher: Teacher, tmp_path: Path) -> None:
    fresh = Teacher.open(make_tiny_bundle(tmp_path / "fresh.anoco").path)
    once = teacher.enroll(parts(1, 2, 3), settings=at_most(17)).product
    again = fresh.enroll(parts(1, 2, 3), settings=at_most(17)).product
    assert bank_hash(once) == bank_hash(again)
    assert (once.coreset, once.threshold) == (again.coreset, again.threshold)


def test_later_changes_choose_anew_from_all_pictures(teacher: Teacher, tmp_path: Path) -> None:
    worked_on: list[str] = []
    teacher = Teacher.open(teacher.bundle.path, progress=worked_on.append)
    teacher.enroll(parts(1, 2), settings=at_most(17))
    worked_on.clear()
    more = teacher.enroll(parts(3)).product
    assert [name for name in worked_on if name != "threshold"] == ["frame1", "frame2", "frame3"]
    fresh = Teacher.open(make_tiny_bundle(tmp_path / "fresh.anoco").path)
    assert bank_hash(more) == bank_hash(fresh.enroll(parts(1, 2, 3), settings=at_most(17)).product)
    assert more.coreset is not None and more.coreset.considered == 48
    fewer = teacher.remove(["frame2"]).product
    assert fewer.coreset is not None and fewer.coreset.considered == 32
    check_rows(teacher.bundle, fewer, parts(1, 3))


def test_without_the_limit_the_bank_is_whole_again(teacher: Teacher) -> None:
    whole = teacher.enroll(parts(1, 2, 3)).product
    thinned = teacher.configure(at_most(9)).product
    assert bank_hash(thinned) != bank_hash(whole) and len(teacher.bundle.bank(thinned)) == 9
    again = teacher.configure(at_most(0)).product
    assert again.coreset is None and bank_hash(again) == bank_hash(whole)
    assert again.threshold == whole.threshold


def test_with_views_and_tiles(teacher: Teacher) -> None:
    views = teacher.enroll(parts(1, 2), "views", at_most(60, tta="references")).product
    bank = check_rows(teacher.bundle, views, parts(1, 2))
    assert len(bank) == 60 and len(np.unique(bank.view)) > 10
    assert views.coreset is not None and 32 < views.coreset.considered <= 2 * 31 * 16
    settings = Settings({"tta": "paper"}, max_patches=60, tiles=TileSettings(grid=(2, 1)))
    product = teacher.enroll(parts(1, 2), "both", settings).product
    assert len(teacher.bundle.bank(product)) == 60 and product.threshold.value is not None
    detector = Detector.open(teacher.bundle.path, "both")
    assert detector.inspect(textured_picture(1)).verdict == "good"
    bad = textured_picture(1)
    bad[30:55, 30:60] = (250, 20, 20)
    found = detector.inspect(bad)
    assert found.verdict == "anomalous"
    evidence = found.evidence(*found.peak)
    assert evidence.reference in ("frame1", "frame2")


def test_patches_without_signal_are_counted_beside_the_thinning(tiny_bundle: Bundle) -> None:
    class Blank:
        name, fingerprint = "blank", "blank"
        engine = open_engine("auto", tiny_bundle)

        def features(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
            features = self.engine.features(pixels)
            features[:, :3] = 0
            return features

    settings = Settings({}, max_patches=10, threshold=1.0)
    product = Teacher(tiny_bundle, Blank()).enroll(parts(1, 2), settings=settings).product
    assert product.coreset is not None
    assert (product.dropped_patches, product.coreset.considered) == (6, 26)


# ---- the threshold


def test_each_reference_is_held_out_whole(teacher: Teacher) -> None:
    """The whole picture is scored against the rows that other references have in the bank."""
    product = teacher.enroll(parts(1, 2, 3), settings=at_most(12)).product
    bank = teacher.bundle.bank(product)
    expected = []
    for number, picture in enumerate(parts(1, 2, 3)):
        pixels, _ = prepare(picture.rgb, teacher.bundle.manifest.input)
        query = teacher.engine.features(pixels[None])[0]
        others = bank.references.features[bank.reference != number]
        expected.append(float(score_patches(query, others).energy.max()))
    assert product.threshold.evidence.scores == pytest.approx(expected, rel=1e-4)
    assert product.threshold.value == pytest.approx(max(expected) * MARGIN, rel=1e-4)


def test_a_reference_may_have_no_row_left(teacher: Teacher) -> None:
    """With eight pictures and four rows, most pictures have no row and are scored against all."""
    product = teacher.enroll(parts(*range(1, 9)), settings=at_most(4)).product
    left = set(teacher.bundle.bank(product).reference.tolist())
    assert len(left) < 8 == len(product.threshold.evidence.scores)
    assert product.threshold.kind == "provisional"
    detector = Detector.open(teacher.bundle.path)
    scores = product.threshold.evidence.scores
    for number in set(range(8)) - left:  # holding it out removed nothing
        score = detector.inspect(parts(number + 1)[0].rgb).score
        assert scores[number] == pytest.approx(score, rel=1e-4)


def test_a_bank_of_one_reference_cannot_hold_it_out(teacher: Teacher) -> None:
    assert len(teacher.bundle.bank(teacher.enroll(parts(1), settings=at_most(1)).product)) == 1
    says = r"in a bank of 1 patches only frame[12] of 2 references is left; keep more"
    with pytest.raises(UsageError, match=says):
        teacher.enroll(parts(2))
    assert teacher.bundle.product().generation == 1
    assert teacher.enroll(parts(2), settings=at_most(0)).product.threshold.value is not None


# ---- the disk


@pytest.fixture
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a folder of its own for temporary files."""
    place = tmp_path / "temp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_temporary_file_is_left(
    teacher: Teacher, own_temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = open_files()
    teacher.enroll(parts(1, 2), settings=at_most(8))

    def broken(*_: Any, **__: Any) -> None:
        raise ScoringError("no")

    monkeypatch.setattr("anoco_edge.teaching.bank_builder.thin", broken)
    with pytest.raises(ScoringError):
        teacher.enroll(parts(3))
    assert list(own_temp.iterdir()) == [] and open_files() == handles


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("large", [False, True], ids=["at the end", "in between"])
def test_a_full_temporary_disk_is_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """The kernel reports ENOSPC on the first write, or when the buffer is written."""
    buffering = 16 if large else 1 << 20

    def full(**_: Any) -> Any:
        return Path("/dev/full").open("r+b", buffering=buffering)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    line = refused(1, "enroll", "line.anoco", "parts", "--max-patches", 9)
    assert f"cannot write features into {tempfile.gettempdir()}: No space left on device" in line
    assert "the disk is full" in line
    with pytest.raises(StorageError):
        Teacher.open("line.anoco").configure(at_most(9))


def test_no_place_for_temporary_files_is_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(**_: Any) -> Any:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryFile", nowhere)
    line = refused(1, "enroll", "line.anoco", "parts", "--max-patches", 9)
    assert "cannot write a temporary file: No such file or directory" in line


# ---- as a user asks for it


def test_max_patches_on_the_command_line(here: Path) -> None:
    whole = bank_hash(Bundle.open("line.anoco").product())
    said = ok("enroll", "line.anoco", "parts", "--max-patches", 30).out
    assert "30 of 112 patches kept, 0 copies" in said
    product = Bundle.open("line.anoco").product()
    assert len(Bundle.open("line.anoco").bank(product)) == 30
    ok("infer", "line.anoco", "good", "--out", "out")
    shutil.rmtree("out")
    names = [reference.name for reference in product.references[4:]]
    ok("references", "remove", "line.anoco", *names)
    ok("product", "set", "line.anoco", "--max-patches", 0)
    assert bank_hash(Bundle.open("line.anoco").product()) == whole
    ok("references", "undo", "line.anoco")
    assert Bundle.open("line.anoco").product().coreset is not None


def test_what_can_be_mistyped_is_one_line(here: Path) -> None:
    line = refused(2, "product", "set", "line.anoco", "--max-patches", 1)
    assert "in a bank of 1 patches only good" in line and "--max-patches" in line
    for wrong in ("-1", "many", "1.5", ""):
        ran = run_cli("product", "set", "line.anoco", "--max-patches", wrong)
        assert ran.code == 2 and "Traceback" not in ran.err and "--max-patches" in ran.err
    with pytest.raises(UsageError, match="a bank of -1 patches; give 1 or more"):
        Teacher.open("line.anoco").configure(at_most(-1))
    make_tiny_bundle(here / "empty.anoco")
    assert "no references yet" in fails(4, "product", "set", "empty.anoco", "--max-patches", 5)
