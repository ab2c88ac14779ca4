"""Test-time augmentation: the views in the bank and of an inspection, and their stated cost."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from command_line import fails, ok, refused, run_cli
from filled_bundle import FILL, SIZE, make_filled_bundle
from numpy.typing import NDArray
from PIL import Image
from tiny_bundle import make_tiny_bundle, textured_picture

from anoco_edge.bundle import Bundle, Product
from anoco_edge.bundle.schema import Affine
from anoco_edge.cli.views.augmentation_cost import accept_cost
from anoco_edge.detector import Detector
from anoco_edge.engines import Engine, open_engine
from anoco_edge.errors import UsageError
from anoco_edge.images.preprocess import place, prepare
from anoco_edge.pipeline.augmentation import IDENTITY, average, paired_views, visible_patches, warp
from anoco_edge.pipeline.energy import EnergyReader, PictureEnergy
from anoco_edge.pipeline.inspection import Inspection
from anoco_edge.pipeline.patch_mask import PatchMask, inspected_patches, inspected_pixels
from anoco_edge.scoring import Parameters, open_scorer, score_patches
from anoco_edge.teaching import NewPicture, Settings, Teacher, TileSettings
from anoco_edge.teaching.provisional_threshold import mild_augmentations

Pixels = NDArray[np.uint8]
Level = Literal["none", "rotations", "references", "paper"]
LEVELS: tuple[Level, ...] = ("none", "rotations", "references", "paper")


def tta(level: Level, **others: Any) -> Settings:
    return Settings({"tta": level, **others})


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_filled_bundle(tmp_path / "line.anoco")


def part(seed: int, width: int = SIZE, height: int = SIZE) -> NewPicture:
    return NewPicture.from_array(f"frame{seed}", textured_picture(seed, width, height))


def parts(*seeds: int) -> list[NewPicture]:
    return [part(seed) for seed in seeds]


def all_views(product: Product, reference: int) -> tuple[Affine, ...]:
    return (IDENTITY, *product.views, *product.references[reference].views)


class Counting:
    """Another engine that also counts how many windows it gets at a time."""

    name, fingerprint = "counting", "counting"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.batches: list[int] = []

    def features(self, pixels: Pixels) -> NDArray[np.float32]:
        self.batches.append(len(pixels))
        return self._engine.features(pixels)


class Colour:
    """An engine with smooth functions of a patch's mean colour, so features turn with content."""

    name, fingerprint = "colour", "colour"

    def __init__(self, stride: int) -> None:
        self._stride = stride

    def features(self, pixels: Pixels) -> NDArray[np.float32]:
        s = self._stride
        batch, height, width, _ = pixels.shape
        blocks = pixels.reshape(batch, height // s, s, width // s, s, 3)
        r, g, b = np.moveaxis(blocks.mean(axis=(2, 4)) / 255, -1, 0)
        found = np.stack([np.ones_like(r), r, g, b, r * r, g * g, r * g, b * b], axis=-1)
        return found.reshape(batch, -1, 8).astype(np.float32)


class Leak:
    """An engine for the red of the reddest pixel of a patch.

    In pictures without red, all of it comes from the fill.
    """

    name, fingerprint = "leak", "leak"

    def features(self, pixels: Pixels) -> NDArray[np.float32]:
        batch, height, width, _ = pixels.shape
        blocks = pixels.reshape(batch, height // 16, 16, width // 16, 16, 3)
        reddest = blocks[..., 0].max(axis=(2, 4)).reshape(batch, -1).astype(np.float32)
        return np.stack([np.ones_like(reddest), reddest], axis=2)


# ---- the bank


@pytest.mark.parametrize("level", ["references", "paper"])
def test_the_bank_holds_every_view_of_every_reference(bundle: Bundle, level: Level) -> None:
    """Each row is the engine's feature for that view and place.

    Only patches that fill has touched are missing.
    """
    pictures = [part(1), part(2, 120, 120)]
    product = Teacher.open(bundle.path).enroll(pictures, settings=tta(level)).product
    contract, bank = bundle.manifest.input, bundle.bank(product)
    assert product.views == paired_views(0, SIZE, SIZE)
    engine = open_engine("auto", bundle)
    rows = 0
    for number, picture in enumerate(pictures):
        pixels, placement = prepare(picture.rgb, contract)
        inside, wanted = inspected_pixels(contract, placement)
        views = all_views(product, number)
        assert len(views) == 31 == len(set(views))
        for k, view in enumerate(views):
            scored = visible_patches(contract, view, inside, wanted)
            features = engine.features(warp(pixels, view, FILL)[None])[0]
            mine = np.flatnonzero((bank.reference == number) & (bank.view == k))
            places = list(zip(bank.row[mine].tolist(), bank.col[mine].tolist(), strict=True))
            assert places == [(r, c) for r, c in np.argwhere(scored).tolist()]
            np.testing.assert_array_equal(
                bank.references.features[mine],
                features[scored.reshape(-1)].astype(np.float16),
            )
            rows += len(mine)
    assert rows == len(bank) and product.dropped_patches == 0
    assert 0.4 < rows / (2 * 31 * 36) < 0.9  # fill touched some of them
    # The identity view is whole, and no two references share their own five views.
    assert ((bank.view == 0).sum(), len(product.references)) == (72, 2)
    first, second = (reference.views for reference in product.references)
    assert len(first) == len(second) == 5 and not set(first) & set(second)


@pytest.mark.parametrize(("fit", "width"), [("stretch", SIZE), ("letterbox", 2 * SIZE)])
def test_patches_that_touch_fill_never_enter_the_bank(tmp_path: Path, fit: str, width: int) -> None:
    bundle = make_filled_bundle(tmp_path / "green.anoco", fit=fit, dim=2)
    green = np.zeros((SIZE, width, 3), np.uint8)
    green[..., 1] = np.arange(width) % 200
    picture = NewPicture.from_array("green", green)
    teacher = Teacher(bundle, Leak())
    settings = tta("references", bank_dtype="float32")
    product = teacher.enroll([picture], settings=settings).product
    bank = bundle.bank(product)
    assert set(bank.view.tolist()) == set(range(31))
    assert not bank.references.features[:, 1].any()
    # The rows that were left out would have shown the fill.
    pixels, _ = prepare(green, bundle.manifest.input)
    views = all_views(product, 0)[1:]
    leaks = Leak().features(np.stack([warp(pixels, view, FILL) for view in views]))[..., 1] > 0
    assert leaks.any(axis=1).all()


def test_the_same_pictures_give_the_same_bytes(bundle: Bundle, tmp_path: Path) -> None:
    settings = tta("references")
    once = Teacher.open(bundle.path).enroll(parts(1, 2), settings=settings).product
    fresh = make_filled_bundle(tmp_path / "fresh.anoco")
    again = Teacher.open(fresh.path).enroll(parts(1, 2), settings=settings).product
    assert once.bank is not None and again.bank is not None
    assert once.bank.sha256 == again.bank.sha256
    assert (once.views, once.threshold) == (again.views, again.threshold)
    assert [r.views for r in once.references] == [r.views for r in again.references]


def test_adding_and_removing_leave_the_rows_of_the_others_alone(
    bundle: Bundle, tmp_path: Path
) -> None:
    teacher = Teacher.open(bundle.path)
    before = bundle.bank(teacher.enroll(parts(1, 2), settings=tta("references")).product)
    after = bundle.bank(teacher.enroll(parts(3)).product)
    assert after.only([0, 1]).to_bytes() == before.to_bytes()
    left = teacher.remove(["frame1"]).product
    assert bundle.bank(left).to_bytes() == after.only([1, 2]).to_bytes()
    fresh = make_filled_bundle(tmp_path / "fresh.anoco")
    anew = Teacher.open(fresh.path).enroll(parts(2, 3), settings=tta("references")).product
    assert fresh.bank(anew).to_bytes() == bundle.bank(left).to_bytes()
    assert left.threshold == anew.threshold


def test_known_references_are_taken_over_and_not_computed_again(bundle: Bundle) -> None:
    engine = Counting(open_engine("auto", bundle))
    teacher = Teacher(bundle, engine)
    teacher.enroll(parts(1, 2), settings=tta("references"))
    assert sum(engine.batches) == 2 * 31
    engine.batches.clear()
    teacher.enroll(parts(3))
    assert sum(engine.batches) == 31
    engine.batches.clear()
    teacher.remove(["frame2"])
    teacher.configure(Settings({"metric": "l2"}))
    assert engine.batches == []


def test_another_level_or_seed_makes_the_bank_anew(bundle: Bundle) -> None:
    teacher = Teacher.open(bundle.path)

    def hash_after(**fields: Any) -> str:
        record = teacher.configure(Settings(fields)).product.bank
        assert record is not None
        return record.sha256

    plain = teacher.enroll(parts(1, 2)).product
    assert plain.bank is not None and plain.views == () == plain.references[0].views
    seeds = hash_after(tta="references"), hash_after(tta_seed=1), hash_after(tta_seed=0)
    assert seeds[0] == seeds[2] != seeds[1] != plain.bank.sha256
    assert hash_after(tta="paper") == seeds[0]  # the levels differ only for the query
    assert hash_after(tta="none") == plain.bank.sha256
    again = bundle.product()
    assert (again.views, again.references, again.threshold) == (
        plain.views,
        plain.references,
        plain.threshold,
    )


def test_a_view_may_see_nothing_of_a_small_region(bundle: Bundle) -> None:
    """In many views, a region of one corner patch lies outside the picture."""
    corner = Settings({"tta": "references"}, region=[(0, 0), (16, 16)])
    product = Teacher.open(bundle.path).enroll(parts(1, 2), settings=corner).product
    bank = bundle.bank(product)
    assert (bank.view == 0).sum() == 2 and len(np.unique(bank.view)) < 31
    assert Detector.open(bundle.path).inspect(part(3).rgb).scored.sum() == 1


class DeadCorner(Colour):
    """An engine that gives zero features for dark pixels."""

    def features(self, pixels: Pixels) -> NDArray[np.float32]:
        found = super().features(pixels)
        found[found[..., 1] < 0.1] = 0
        return found


def test_a_view_that_sees_only_what_has_no_signal_is_left_out(tmp_path: Path) -> None:
    bundle = make_filled_bundle(tmp_path / "dead.anoco")
    rgb = np.full((SIZE, SIZE, 3), 200, np.uint8)
    rgb[16:] = rgb[:, 16:] = 0
    # Only the first patch has features, and most views move it to where fill has touched it.
    settings = Settings({"tta": "references"}, region=[(0, 0), (64, 48)], threshold=1.0)
    dark = NewPicture.from_array("dark", rgb)
    product = Teacher(bundle, DeadCorner(16)).enroll([dark], settings=settings).product
    contract, bank = bundle.manifest.input, bundle.bank(product)
    pixels = inspected_pixels(contract, place(contract, SIZE, SIZE), product.region)
    scored = [int(visible_patches(contract, v, *pixels).sum()) for v in all_views(product, 0)]
    alive = [int((bank.view == k).sum()) for k in range(31)]
    assert alive[0] == 1 and any(c and not a for c, a in zip(scored, alive, strict=True))
    assert product.dropped_patches == sum(scored) - sum(alive)


# ---- an inspection


@pytest.mark.parametrize(
    ("level", "batches"),
    [("none", [1]), ("rotations", [1]), ("references", [1]), ("paper", [1, *[4] * 6, 1])],
)
def test_how_often_a_query_goes_through_the_engine(
    bundle: Bundle, level: Level, batches: list[int]
) -> None:
    Teacher.open(bundle.path).enroll(parts(1, 2), settings=tta(level))
    detector = Detector.open(bundle.path)
    engine = Counting(detector._pipeline.engine)
    detector._pipeline.energies._engine = engine
    detector.inspect(part(3).rgb)
    assert engine.batches == batches


def read_by_hand(bundle: Bundle, product: Product, rgb: Pixels) -> Any:
    """Compute views, energies and average in plain steps, as DESIGN section 3 says."""
    contract = bundle.manifest.input
    engine, bank = open_engine("auto", bundle), bundle.bank(product).references.features
    pixels, placement = prepare(rgb, contract)
    inside, wanted = inspected_pixels(contract, placement)
    seen = []
    for view in (IDENTITY, *product.views):
        scored = visible_patches(contract, view, inside, wanted)
        features = engine.features(warp(pixels, view, contract.fill)[None])[0]
        energy = np.zeros(scored.shape, np.float32)
        scores = score_patches(features[scored.reshape(-1)], bank, scorer="reference")
        energy[scored] = scores.energy
        seen.append((view, energy, scored))
    return average(contract, seen, inspected_patches(contract, placement))


@pytest.mark.parametrize(("fit", "width"), [("stretch", SIZE), ("letterbox", SIZE * 3 // 2)])
def test_the_map_is_the_average_of_all_views(tmp_path: Path, fit: str, width: int) -> None:
    bundle = make_filled_bundle(tmp_path / "line.anoco", fit=fit)
    good = [part(1, width), part(2, width)]
    product = Teacher.open(bundle.path).enroll(good, settings=tta("paper")).product
    rgb = textured_picture(3, width, SIZE)
    rgb[40:56, 40:56] = 250
    found = Detector.open(bundle.path, scorer="reference").inspect(rgb)
    expected = read_by_hand(bundle, product, rgb)
    np.testing.assert_allclose(found.energy, expected, rtol=1e-4, atol=1e-9)
    assert found.score == pytest.approx(float(expected[found.scored].max()), rel=1e-4)
    once = Detector.open(bundle.path, scorer="reference")
    once._pipeline.energies._views = ()
    assert np.abs(once.inspect(rgb).energy - found.energy).max() > 1e-3 * found.score


def scene(width: int, height: int, blob: bool = False) -> Pixels:
    """Draw slow changes of colour, and a red blob that no reference has."""
    y, x = np.mgrid[0:height, 0:width] + 0.5
    red = 90 + 30 * np.sin(x / 40)
    if blob:
        red = red + 120 * np.exp(-((x - 0.6 * width) ** 2 + (y - 0.45 * height) ** 2) / 2 / 24**2)
    green, blue = 120 + 40 * np.sin(y / 45), 100 + 30 * np.cos((x + y) / 60)
    return np.stack([red, green, blue], axis=2).round().astype(np.uint8)


def reading(bundle: Bundle, engine: Engine, product: Product, rgb: Pixels) -> PictureEnergy:
    bank = bundle.bank(product).references
    scorer = open_scorer("auto", bank, Parameters(product.lam, product.metric, product.floor))
    patch_mask = PatchMask.of(bundle, product)
    reader = EnergyReader(engine, bundle.manifest.input, product, patch_mask, scorer)
    (found,) = reader.read([rgb])
    assert isinstance(found, PictureEnergy)
    return found


def test_views_of_a_picture_agree_where_content_turns_with_its_features(tmp_path: Path) -> None:
    """One bank is used with 26 views of the query and with one.

    After warping back they agree, except for what lies between patch centres.
    """
    bundle = make_filled_bundle(tmp_path / "scene.anoco", stride=4)
    engine = Colour(4)
    reference = NewPicture.from_array("scene", scene(SIZE, SIZE))
    product = Teacher(bundle, engine).enroll([reference]).product
    rgb = scene(SIZE, SIZE, blob=True)
    once = reading(bundle, engine, product, rgb)
    paper = {"tta": "paper", "views": paired_views(0, SIZE, SIZE)}
    many = reading(bundle, engine, product.model_copy(update=paper), rgb)
    assert many.scored.all() and once.scored.all()
    for found in (once, many):
        row, col = np.unravel_index(found.energy.argmax(), (24, 24))
        assert abs(row - 10) <= 1 and abs(col - 14) <= 1
    assert 0 < np.abs(many.energy - once.energy).max() < 0.05 * once.energy.max()


# ---- evidence


def position_coded(width: int, height: int) -> Pixels:
    """Draw a picture whose red gives the column of a pixel and whose green gives the row."""
    y, x = np.mgrid[0:height, 0:width] + 0.5
    code = [55 + 180 * x / width, 55 + 180 * y / height, np.full(x.shape, 128)]
    return np.stack(code, axis=2).round().astype(np.uint8)


def coded_position(colour: NDArray[np.float64], width: int, height: int) -> tuple[float, float]:
    return (colour[0] - 55) / 180 * width, (colour[1] - 55) / 180 * height


def test_evidence_in_a_view_points_at_its_place_in_the_reference(tmp_path: Path) -> None:
    """Every patch of a query that is a view of a reference leads back to its place in that.

    Views are turned, sheared and some mirrored. The place is where the patch's colour is in the
    enrolled picture, in pixels of that picture.
    """
    bundle = make_filled_bundle(tmp_path / "coded.anoco")
    width, height = 2 * SIZE, SIZE * 3
    reference = NewPicture.from_array("coded", position_coded(width, height))
    product = Teacher(bundle, Colour(16)).enroll([reference], settings=tta("references")).product
    detector = Detector.open(bundle.path)
    detector._pipeline.energies._engine = Colour(16)
    contract, bank = bundle.manifest.input, bundle.bank(product)
    pixels, placement = prepare(reference.rgb, contract)
    inside, wanted = inspected_pixels(contract, placement)
    views = all_views(product, 0)
    flips = {(a < 0, e < 0): k for k, (a, _, _, _, e, _) in enumerate(views) if k}
    assert len(flips) == 4  # none, either and both
    for number in flips.values():
        query = warp(pixels, views[number], FILL)
        large = np.asarray(Image.fromarray(query).resize((width, height), Image.Resampling.NEAREST))
        result: Inspection = detector.inspect(large)
        whole = visible_patches(contract, views[number], inside, wanted)
        for row, col in np.argwhere(whole).tolist():
            evidence = result.evidence(row, col)
            colour = query[16 * row : 16 * row + 16, 16 * col : 16 * col + 16].mean(axis=(0, 1))
            x, y = coded_position(colour, width, height)
            x0, y0, x1, y1 = evidence.box
            # A colour step is 1 / 180 of the picture, and the nearest patch of 31 views is closer
            # than a third of a patch.
            assert abs((x0 + x1) / 2 - x) < width / 18 and abs((y0 + y1) / 2 - y) < height / 18
        anchored = bank.view[result.anchor[whole]]
        assert (anchored == number).mean() > 0.9


# ---- thresholds


@pytest.mark.parametrize("level", LEVELS)
def test_a_single_reference_is_compared_with_gentle_changes_of_itself(
    bundle: Bundle, level: Level
) -> None:
    product = Teacher.open(bundle.path).enroll(parts(1), settings=tta(level)).product
    assert product.threshold.kind == "provisional"
    detector = Detector.open(bundle.path)
    scores = [detector.inspect(view).score for view in mild_augmentations(part(1).rgb)]
    assert product.threshold.evidence.scores == pytest.approx(scores, rel=1e-4)
    assert detector.inspect(part(1).rgb).verdict == "good"


@pytest.mark.parametrize("level", LEVELS)
def test_each_reference_is_scored_as_if_only_the_others_were_known(
    bundle: Bundle, tmp_path: Path, level: Level
) -> None:
    product = Teacher.open(bundle.path).enroll(parts(1, 2, 3), settings=tta(level)).product
    assert product.threshold.kind == "provisional"
    others = make_filled_bundle(tmp_path / "others.anoco")
    Teacher.open(others.path).enroll(parts(2, 3), settings=tta(level))
    score = Detector.open(others.path).inspect(part(1).rgb).score
    # Held-out patches come from the bank where possible, so they are rounded to float16.
    assert product.threshold.evidence.scores[0] == pytest.approx(score, rel=0.02)


# ---- together with the other settings


def png(mask: NDArray[np.bool_]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("level", ["references", "paper"])
def test_views_tiles_region_and_mask_together(tmp_path: Path, level: Level) -> None:
    bundle = make_tiny_bundle(tmp_path / "all.anoco")
    ignore = np.zeros((160, 224), np.bool_)
    ignore[:60, :80] = True
    settings = Settings(
        {"tta": level},
        region=[(30, 10), (220, 155)],
        mask=png(ignore),
        tiles=TileSettings(grid=(2, 2), overlap=32),
    )
    good = [part(seed, 224, 160) for seed in (1, 2)]
    product = Teacher.open(bundle.path).enroll(good, settings=settings).product
    canvas = bundle.manifest.input.tiled(product.tiles)
    assert (canvas.cols, canvas.rows) == (7, 6)
    assert product.views == paired_views(0, canvas.width, canvas.height)
    bank = bundle.bank(product)
    where = place(canvas, 224, 160)
    pixels = inspected_pixels(canvas, where, product.region, ignore)
    for k, view in enumerate(all_views(product, 1)):
        mine = (bank.reference == 1) & (bank.view == k)
        scored = visible_patches(canvas, view, *pixels)
        found = np.zeros_like(scored)
        found[bank.row[mine], bank.col[mine]] = True
        np.testing.assert_array_equal(found, scored)
    detector = Detector.open(bundle.path)
    engine = Counting(detector._pipeline.engine)
    detector._pipeline.energies._engine = engine
    bad = textured_picture(5, 224, 160)
    bad[100:130, 120:160] = (250, 20, 20)
    bad[:50, :70] = (250, 20, 20)  # lies under the mask
    result = detector.inspect(bad)
    assert sum(engine.batches) == 4 * (26 if level == "paper" else 1) and max(engine.batches) <= 8
    np.testing.assert_array_equal(
        result.scored, inspected_patches(canvas, where, product.region, ignore)
    )
    assert not result.energy[~result.scored].any() and result.verdict == "anomalous"
    x0, y0, x1, y1 = result.regions[0].box
    assert x0 < 160 and x1 > 120 and y0 < 130 and y1 > 100
    assert not result.scored[:2, :2].any()
    assert detector.inspect(good[0].rgb).verdict == "good"


# ---- the cost, before it is accepted


def cost(text: str) -> dict[str, float]:
    """Return the numbers in the sentence about the cost."""
    found = re.search(
        r"(\d+) views of each of (\d+) references make a bank of up to ([\d,]+) patches "
        r"\(([\d,.]+) MB in (float\d\d)\) instead of ([\d,]+); a picture takes (\d+) runs? of the "
        r"backbone and about (\S+) s on this machine instead of (\S+) s",
        text,
    )
    assert found is not None, text
    names = ("views", "references", "patches", "megabytes", "dtype", "before", "runs", "s", "was")
    numbers = (value.replace(",", "").removeprefix("float") for value in found.groups())
    return dict(zip(names, map(float, numbers), strict=True))


def test_the_cost_is_said_and_must_be_accepted(here: Path) -> None:
    before = Bundle.open("line.anoco").product()
    ran = run_cli("enroll", "line.anoco", "parts", "--tta", "paper")
    assert ran.code == 2
    assert ran.complaint == "anoco-edge: this cost was not accepted; accept it with --yes"
    said = cost(ran.err)
    assert (said["views"], said["references"], said["runs"]) == (31, 4 + 3, 26)
    assert said["patches"] == 7 * 31 * 16 and said["before"] == 7 * 16
    assert said["dtype"] == 16 and said["megabytes"] == pytest.approx(0.1)  # 55,552 bytes
    assert said["s"] > said["was"] > 0
    assert Bundle.open("line.anoco").product() == before
    ran = ok("enroll", "line.anoco", "parts", "--tta", "paper", "--yes")
    assert cost(ran.err)["patches"] == said["patches"]
    product = Bundle.open("line.anoco").product()
    assert product.tta == "paper" and len(product.references) == 7
    assert len(Bundle.open("line.anoco").bank(product)) <= said["patches"]
    # Once accepted, more references need no second confirmation, and going back costs nothing.
    ok("references", "remove", "line.anoco", product.references[0].name)
    ok("product", "set", "line.anoco", "--tta", "none")


class Terminal(io.StringIO):
    """A terminal with a user who types answers."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_person_is_asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, code, level in (("n", 1, "none"), ("", 1, "none"), ("y", 0, "references")):
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        ran = run_cli("product", "set", "line.anoco", "--tta", "references")
        assert ran.code == code and "go on?" in ran.err and cost(ran.err)["views"] == 31
        assert Bundle.open("line.anoco").product().tta == level


def test_the_cost_is_that_of_the_other_settings_too(here: Path) -> None:
    """The cost includes tiles, precision and the largest bank, as they will be."""
    tiles = ("--tiles", "2x2", "--overlap", "0")
    asked = ("product", "set", "line.anoco", "--tta", "references", *tiles)
    said = cost(run_cli(*asked, "--bank-dtype", "float32").err)
    assert (said["patches"], said["before"], said["runs"]) == (4 * 31 * 64, 4 * 64, 4)
    assert said["dtype"] == 32 and said["megabytes"] == pytest.approx(0.3)  # 253,952 bytes
    said = cost(run_cli(*asked, "--max-patches", 100).err)
    assert (said["patches"], said["before"]) == (100, 100)
    ok("product", "set", "line.anoco", *tiles, "--max-patches", 50)
    said = cost(run_cli("product", "set", "line.anoco", "--tta", "paper").err)
    assert (said["patches"], said["runs"]) == (50, 4 * 26)
    without = ("--tiles", "none", "--max-patches", 0)
    said = cost(run_cli("product", "set", "line.anoco", "--tta", "paper", *without).err)
    assert (said["patches"], said["runs"]) == (4 * 31 * 16, 26)


def test_tiles_of_an_augmented_product_are_asked_about_and_more_references_noted(
    here: Path,
) -> None:
    ok("product", "set", "line.anoco", "--tta", "references", "--yes")
    ran = run_cli("product", "set", "line.anoco", "--tiles", "2x2", "--overlap", 0)
    assert ran.code == 2 and "this cost was not accepted" in ran.complaint
    said = cost(ran.err)
    assert (said["patches"], said["runs"]) == (4 * 31 * 64, 4)
    assert Bundle.open("line.anoco").product().tiles is None
    ok("product", "set", "line.anoco", "--tile-size", "48x40", "--yes")
    assert cost(ok("enroll", "line.anoco", "parts").err)["references"] == 4 + 3
    for cheap in (("--tiles", "none"), ("--min-area", 5)):
        assert "views of each" not in ok("product", "set", "line.anoco", *cheap).err


def test_tiles_of_a_first_enrolment_are_in_the_cost(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tiny_bundle(here / "new.anoco")
    first = str(next((here / "good").glob("*.png")))
    for tiles in (TileSettings(grid=(2, 2), overlap=0), TileSettings(size=(48, 40), overlap=0)):
        settings = Settings({"tta": "references"}, tiles=tiles)
        accept_cost(Bundle.open("new.anoco"), None, settings, [first] * 5, yes=True)
        assert cost(capsys.readouterr().err)["patches"] == 5 * 31 * 64
    wrong = Settings({"tta": "references"}, tiles=TileSettings(grid=(2, 2), overlap=500))
    with pytest.raises(UsageError, match="leaves nothing of tiles"):
        accept_cost(Bundle.open("new.anoco"), None, wrong, [first] * 5, yes=True)


def test_no_cost_no_question(here: Path) -> None:
    ran = ok("enroll", "line.anoco", "parts", "--tta", "none")
    assert "views of each" not in ran.err


def test_what_can_be_mistyped_is_one_line(here: Path) -> None:
    for options in (["--tta", "some"], ["--tta", ""], ["--tta-seed", "-1"], ["--tta-seed", "x"]):
        ran = run_cli("product", "set", "line.anoco", *options)
        assert ran.code == 2 and "Traceback" not in ran.err, ran.err
    line = refused(2, "enroll", "line.anoco", "parts", "--tta", "paper", "--product", "a b", "-y")
    assert "is not a product name" in line
    assert "no product 'other'" in fails(
        2, "product", "set", "line.anoco", "--product", "other", "--tta", "paper", "--yes"
    )
    with pytest.raises(UsageError, match="tta: Input should be"):
        Teacher.open("line.anoco").configure(Settings({"tta": "some"}))
    with pytest.raises(UsageError, match="tta_seed: Input should be"):
        Teacher.open("line.anoco").configure(Settings({"tta_seed": -1}))
