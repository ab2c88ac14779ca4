"""The page of `anoco-edge eval` has the right numbers, the worst first, and loads nothing."""

from __future__ import annotations

import base64
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import defective_picture, fails, ok, run_cli
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tiny_bundle import make_tiny_bundle
from tiny_dataset import MASK, make_category, save_picture

from anoco_edge.bundle import Bundle
from anoco_edge.engines import open_engine
from anoco_edge.errors import PictureError, StorageError
from anoco_edge.reporting.charts import LEFT, PALETTE, RIGHT
from anoco_edge.reporting.overlay import CONTOUR
from anoco_edge_calibration.evaluation import Evaluation, EvaluationPlan, eval_report, evaluate
from anoco_edge_calibration.evaluation import gallery as gallery_module
from anoco_edge_calibration.evaluation.eval_report import CHART, write_eval_report
from anoco_edge_calibration.evaluation.gallery import GAP, SIDE, Gallery
from anoco_edge_calibration.evaluation.layouts import open_dataset
from anoco_edge_calibration.evaluation.metrics import roc_curve
from anoco_edge_calibration.evaluation.tables import METRICS, EvaluationRow, mean_rows
from anoco_edge_calibration.evaluation.unit import EvaluationProblem, EvaluationSetup, PictureScore
from anoco_edge_calibration.evaluation.variants import parse_variants

CHROMIUM = shutil.which("chromium")


class CategoryReader(HTMLParser):
    """Reads the page as a browser does.

    Tags must be closed in their order, and nothing is loaded.
    """

    VOID = frozenset({"meta", "wbr", "br", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        assert tag not in {"script", "link", "iframe", "object"}
        for name, value in attrs:
            assert not name.startswith("on") and name != "style"
            if name in {"src", "href"}:
                assert re.match("data:image/jpeg;base64,|#c[0-9]+$", value or ""), value

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a data set of two categories.

    `bolt` is easy; `nut` has an invisible defect and a good part that looks defective.
    """
    folder = tmp_path_factory.mktemp("eval_report")
    make_tiny_bundle(folder / "line.anoco")
    make_category(folder / "parts" / "bolt", 0)
    nut = folder / "parts" / "nut"
    make_category(nut, 100)
    shutil.copy(nut / "train/good/good3.png", nut / "test/red/unseen.png")
    save_picture(nut / "test/good/odd.png", defective_picture(300))
    return folder


@pytest.fixture
def here(line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the data set into the current directory."""
    shutil.copytree(line, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def add_masks(folder: Path, mask: np.ndarray = MASK) -> None:
    """Add masks of the defects, only where needed, since counting pixels takes most of the time."""
    for picture in folder.glob("*/test/red/*.png"):
        save_picture(picture.parents[2] / "ground_truth/red" / picture.name, mask)


def page_of(folder: str = "eval-out") -> CategoryReader:
    return CategoryReader(Path(folder, "report.html").read_text(encoding="utf-8"))


def captions(page: CategoryReader, category: str, heading: str) -> list[str]:
    """Return the captions of a category's pictures under a heading."""
    text = Path("eval-out/report.html").read_text(encoding="utf-8")
    section = re.findall(rf"<h2>{category}</h2>.*?</section>", text, re.DOTALL)[0]
    under = section.partition(f" {heading}: ")[2].partition("<h3>")[0]
    said = re.findall(r"<figcaption>(.*?)</figcaption>", under)
    return [re.sub("<.*?>", "", words) for words in said]


def measured(folder: Path, scorers: str = "anoco", **changes: Any) -> tuple[Evaluation, Gallery]:
    bundle = Bundle.open(folder / "line.anoco")
    plan = EvaluationPlan(open_dataset(folder / "parts"), **changes)
    setup = EvaluationSetup(bundle, open_engine("auto", bundle), parse_variants(scorers))
    gallery = Gallery(setup.variants, plan.shots, len(plan.dataset.categories))
    return evaluate(plan, setup, observe=gallery.observe), gallery


# ---- what the page says


def test_the_page_lies_beside_the_results_and_says_the_same(here: Path) -> None:
    args = ("--shots", "1,2", "--seeds", 2, "--scorers", "anoco,knn-l2")
    ran = ok("eval", "parts", *args)
    assert "eval-out/report.html" in ran.err
    page = page_of()
    told = Path("eval-out/results.md").read_text()
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")]
    assert len(cells) == 9 * (1 + 2 * 2 * 3)
    html = Path("eval-out/report.html").read_text(encoding="utf-8")
    table = html.partition('aria-label="Results"')[2].partition("</table>")[0]
    shown = re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", table)
    assert [cell.replace("<b>", "**").replace("</b>", "**") for cell in shown] == cells
    assert any("±" in cell for cell in cells) and any("**" in cell for cell in cells)
    cards = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html))
    assert cards["Data set"] == "parts" and cards["Input size"] == "64x64 stretch"
    assert (cards["Shots"], cards["Seeds"], cards["Precision"]) == ("1, 2", "2", "fp32")
    assert cards["Engine"].startswith("onnxruntime") and cards["Machine"]
    for fact in ("bundle_sha256", "versions", "numpy", "memory_mb", "threads"):
        assert fact in page.text.partition("What the figures depend on")[2]
    assert [link["href"] for link in page.all("a")] == ["#c0", "#c1"]
    assert {"c0", "c1"} <= {section.get("id") for section in page.all("section")}
    assert all(image["alt"] for image in page.all("img"))


def curves(page: CategoryReader, chart: str) -> list[list[tuple[float, float]]]:
    """Return the points of the scorers' lines in a chart, from 0 to 1.

    The lines are found by their labels for screen readers.
    """
    found: list[list[tuple[float, float]]] = []
    inside = False
    for tag, attrs in page.tags:
        if tag == "svg":
            inside = chart in (attrs.get("aria-label") or "")
        elif inside and tag == "polyline" and attrs["stroke-width"] == "2":
            pairs = [p.split(",") for p in (attrs["points"] or "").split()]
            wide = CHART - LEFT - RIGHT
            found.append([((float(x) - LEFT) / wide, float(y)) for x, y in pairs])
    return found


def test_curves_of_every_scorer_at_every_number_of_shots(here: Path) -> None:
    ok("eval", "parts", "--shots", "1,2", "--seeds", 2, "--scorers", "anoco,knn-l2")
    page = page_of()
    labels = [chart["aria-label"] for chart in page.all("svg") if "aria-label" in chart]
    assert labels == [
        f"{kind} of {category}, {draw}: anoco, knn-l2"
        for category in ("bolt", "nut")
        for draw in ("1 shot, seed 0", "2 shots, seed 0")
        for kind in ("ROC", "Precision and recall")
    ]
    result, _ = measured(here, "anoco,knn-l2", shots=(1, 2), seeds=2)
    for k, scorer in enumerate(("anoco", "knn-l2")):
        chosen = [
            (one.score, one.defect is not None)
            for one in result.pictures
            if (one.category, one.shots, one.seed, one.scorer) == ("nut", 2, 0, scorer)
        ]
        fpr, tpr = roc_curve(*zip(*chosen, strict=True))
        drawn = curves(page, "ROC of nut, 2 shots")[k]
        assert [x for x, _ in drawn] == pytest.approx(fpr.tolist(), abs=1e-3)
        heights = np.array([y for _, y in drawn])
        up = (heights[0] - heights) / (heights[0] - heights[-1])
        assert up == pytest.approx(tpr, abs=1e-3)
    marks = [rect["fill"] for rect in page.all("rect") if rect.get("width") == "10"]
    assert marks == [*PALETTE[:2]] * 2, "a legend for each category"


def test_problems_stand_at_the_top(here: Path) -> None:
    Path("parts/bolt/test/red/1.png").write_bytes(b"half a pic")
    assert run_cli("eval", "parts", "--shots", "1").code == 1
    text = page_of().text
    assert "1 thing could not be measured parts/bolt/test/red/1.png is not a picture" in text
    assert text.index("could not be measured") < text.index("Data set")


def test_of_many_problems_the_first_are_listed(tmp_path: Path) -> None:
    rows = [EvaluationRow("d", "nut", 1, 0, "anoco", dict.fromkeys(METRICS, 0.5))]
    problems = [EvaluationProblem("nut", "", f"picture {k} is gone") for k in range(25)]
    result = Evaluation(rows + mean_rows(rows), problems=problems, remarks=["mean of <one>"])
    write_eval_report(tmp_path / "report.html", "d", result, {}, {})
    text = page_of(str(tmp_path)).text
    assert "25 things could not be measured" in text and "mean of <one>." in text
    assert "picture 19 is gone and 5 more: see results.json" in text and "picture 20" not in text


def test_names_are_text_never_markup(here: Path) -> None:
    evil = '<img src="http:x" onerror=alert(1)>.png'
    Path("parts").rename("{{TABLE}}<b>")
    category = Path("{{TABLE}}<b>/nut").rename("{{TABLE}}<b>/<script>&")
    (category / "test/red/unseen.png").rename(category / "test/red" / evil.replace("/", "_"))
    for reference in (category / "train/good").iterdir():
        reference.rename(reference.with_name(f"<i>{reference.name}"))
    ok("eval", "{{TABLE}}<b>", "--shots", "2")
    text = page_of().text
    assert "{{TABLE}}<b>: how well defects are found" in text
    assert f"red/{evil} score" in text and "<script>&" in text
    assert "compared with <i>good" in text


def test_file_names_that_are_not_unicode_do_not_cost_the_page(tmp_path: Path) -> None:
    rows = [EvaluationRow("d", "n\udcff", 1, 0, "anoco", dict.fromkeys(METRICS, 0.5))]
    write_eval_report(tmp_path / "report.html", "d", Evaluation(rows + mean_rows(rows)), {}, {})
    assert r"n\udcff" in page_of(str(tmp_path)).text
    with pytest.raises(StorageError, match="cannot write"):
        write_eval_report(tmp_path / "no" / "report.html", "d", Evaluation(rows), {}, {})


def test_where_nothing_could_be_taught_the_page_says_why(here: Path) -> None:
    for picture in Path("parts").glob("*/train/good/*"):
        picture.write_bytes(b"half a pic")
    assert "could not be measured" in fails(1, "eval", "parts", "--shots", "1")
    page = page_of()
    assert "2 things could not be measured 1 shots of seed 0 are left out" in page.text
    assert not page.all("img")


# ---- what was judged worst


def test_the_planted_miss_and_the_planted_false_alarm_come_first(here: Path) -> None:
    ok("eval", "parts", "--shots", "1,full", "--scorers", "knn-l2,anoco")
    page = page_of()
    misses, alarms = (captions(page, "nut", h) for h in ("misses", "false alarms"))
    assert len(misses) == len(alarms) == 4
    assert misses[0].startswith("red/unseen.png score ")
    assert "scores below 4 of 4 good parts; compared with good3.png, similarity 1.000" in misses[0]
    assert alarms[0].startswith("good/odd.png score ")
    assert re.search(
        r"scores above [1-4] of 4 defective parts; compared with good\d.png, simi", alarms[0]
    )
    scores = [float(re.findall("score ([0-9.e-]+)", words)[0]) for words in misses + alarms]
    assert scores[:4] == sorted(scores[:4]) and scores[4:] == sorted(scores[4:], reverse=True)
    assert "Worst misses: defective parts with the lowest scores anoco, full; 4 of 4" in page.text


def test_where_good_and_defective_are_apart_there_is_no_miss(here: Path) -> None:
    ok("eval", "parts/bolt", "--shots", "2")
    page = page_of()
    assert "No misses: defective parts with the lowest scores anoco, 2 shots, seed 0; 3 of 3" in (
        page.text
    )
    assert "No false alarms: good parts with the highest scores" in page.text
    assert all("scores below none of 3 good parts" in c for c in captions(page, "bolt", "misses"))


def near(panel: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Compare roughly, because JPEG stores colours at half the resolution."""
    return np.asarray((np.abs(panel.astype(int) - colour) < 90).all(axis=2))


def green(panel: np.ndarray) -> np.ndarray:
    """Find the box of the strongest patch by its green, which nothing else on the page has."""
    red, green, blue = np.moveaxis(panel.astype(int), 2, 0)
    return np.asarray((green > red + 60) & (green > blue + 60))


def test_a_picture_is_shown_plain_and_with_its_heat_map_and_the_true_outline(here: Path) -> None:
    add_masks(Path("parts"))
    _, gallery = measured(here, shots=(4,))
    worst = gallery.worst["bolt"]
    panels = {}
    for one in (worst.misses[0], worst.alarms[0]):
        assert isinstance(one.drawn, bytes)
        picture = np.asarray(Image.open(io.BytesIO(one.drawn)))
        wide = (picture.shape[1] - GAP) // 2
        assert picture.shape == (round(SIDE * 80 / 96), 2 * SIDE + GAP, 3)
        panels[one.name[:3]] = picture[:, :wide], picture[:, wide + GAP :]
    plain, hot = panels["red"]
    cyan = near(hot, CONTOUR)
    assert cyan.sum() > 200 and not near(plain, CONTOUR).any()
    rows, cols = np.nonzero(cyan)
    scale = SIDE / 96
    edges = (rows.min(), rows.max(), cols.min(), cols.max())
    assert edges == pytest.approx([v * scale for v in (30, 55, 30, 60)], abs=5)
    rows, cols = np.nonzero(green(hot))
    # A patch covers 24 x 20 pixels of the picture, and the strongest one touches the red.
    assert 25 * scale < rows.mean() < 55 * scale and 30 * scale < cols.mean() < 66 * scale
    assert np.abs(plain[120:160, 120:180].astype(int) - (250, 20, 20)).max() < 40
    plain, hot = panels["goo"]
    assert not near(hot, CONTOUR).any() and green(hot).any()


def test_without_masks_or_with_a_wrong_one_there_is_no_outline(here: Path) -> None:
    add_masks(Path("parts"), MASK[:40])
    shutil.rmtree("parts/bolt/ground_truth")
    _, gallery = measured(here, shots=(4,))
    for category in ("bolt", "nut"):
        for one in gallery.worst[category].misses:
            assert isinstance(one.drawn, bytes)
            assert not near(np.asarray(Image.open(io.BytesIO(one.drawn))), CONTOUR).any()


def test_without_good_test_pictures_there_are_no_curves_and_no_ranks(here: Path) -> None:
    add_masks(Path("parts"))
    shutil.rmtree("parts/bolt/test/good")
    assert run_cli("eval", "parts/bolt", "--shots", "1").code == 1
    page = page_of()
    assert "No curves: they need good and defective test parts" in page.text
    assert "no good part to compare with; compared with" in page.text
    assert "false alarms" not in page.text and len(page.all("img")) == 3


def test_the_first_anoco_scorer_is_shown_and_another_where_there_is_none(here: Path) -> None:
    _, gallery = measured(here, "knn-cosine,knn-l2")
    assert gallery.worst["nut"].scorer == "knn-cosine"
    bundle = Bundle.open("line.anoco")
    swept = parse_variants("knn-l2,anoco", ["lambda=0.1,10"])
    plan = EvaluationPlan(open_dataset(Path("parts")), shots=(2, 1))
    gallery = Gallery(swept, plan.shots, 2)
    setup = EvaluationSetup(bundle, open_engine("auto", bundle), swept)
    evaluate(plan, setup, observe=gallery.observe)
    worst = gallery.worst["nut"]
    assert (worst.scorer, worst.shots, worst.seed) == ("anoco lambda=0.1", 2, 0)


def test_a_draw_that_cannot_be_taught_gives_way_to_the_next_seed(here: Path) -> None:
    category = open_dataset(Path("parts")).categories[0]
    (first,), (second,) = (category.draw(1, seed) for seed in (0, 1))
    assert first != second
    first.write_bytes(b"half a pic")
    assert run_cli("eval", "parts", "--shots", "1", "--seeds", 2).code == 1
    text = page_of().text
    assert "anoco, 1 shot, seed 1; 3 of 3" in text and "anoco, 1 shot, seed 0; 4 of 4" in text
    second.write_bytes(b"half a pic")
    Path("parts/bolt/train/good/good0.png").write_bytes(b"half a pic")
    _, gallery = measured(here, shots=(1, 6))
    assert set(gallery.worst) == {"nut"}


# ---- how large it may become


def test_every_category_has_its_share_of_the_page(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, gallery = measured(here)
    sizes = [len(s.drawn) for w in gallery.worst.values() for s in (*w.misses, *w.alarms)]
    room = round(2.5 * max(sizes))
    monkeypatch.setattr(gallery_module, "PICTURE_BYTES", 4 * room)
    ok("eval", "parts", "--shots", "1")
    page = page_of()
    jpegs = [base64.b64decode((i["src"] or "").partition(",")[2]) for i in page.all("img")]
    assert sum(map(len, jpegs)) <= 4 * room and len(jpegs) >= 2 * 2 * 2
    assert "Not drawn: the page would become too large." in page.text
    assert len(captions(page, "nut", "misses")) == 4, "in words it is there"


def test_a_picture_that_is_gone_by_now_costs_its_overlay_only(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> Any:
        raise PictureError(f"{path} is not there <any more>")

    monkeypatch.setattr(gallery_module, "read_picture", gone)
    ok("eval", "parts/bolt", "--shots", "1")
    page = page_of()
    assert "Not drawn: parts/bolt/test/red/0.png is not there <any more>" in page.text
    assert not page.all("img")


def test_more_scorers_than_colours_are_the_best_ones(tmp_path: Path) -> None:
    result = Evaluation()
    for k in range(8):
        figures = dict.fromkeys(METRICS, 0.9 - 0.1 * (k in (0, 3)))
        result.rows.append(EvaluationRow("d", "nut", 1, 0, f"scorer{k}", figures))
        for score, defect in ((1.0, None), (2.0 + k, "red")):
            one = PictureScore("nut", "a.png", defect, f"scorer{k}", 1, 0, score)
            result.pictures.append(one)
    result.rows += mean_rows(result.rows)
    write_eval_report(tmp_path / "report.html", "d", result, {}, {})
    page = page_of(str(tmp_path))
    assert "2 scorers with the lowest mean AUROC are left out." in page.text
    (label,) = [c["aria-label"] for c in page.all("svg") if "ROC" in (c.get("aria-label") or "")]
    assert (label or "").endswith(": scorer1, scorer2, scorer4, scorer5, scorer6, scorer7")
    assert len(curves(page, "ROC")) == len(PALETTE)


def test_a_scorer_without_a_curve_leaves_the_others_their_colours(tmp_path: Path) -> None:
    result = Evaluation(
        [EvaluationRow("d", "nut", 1, 0, s, dict.fromkeys(METRICS, 0.5)) for s in "ab"]
    )
    result.pictures = [
        PictureScore("nut", "a.png", None, "a", 1, 0, 1.0),
        PictureScore("nut", "a.png", None, "b", 1, 0, 1.0),
        PictureScore("nut", "b.png", "red", "b", 1, 0, 2.0),
    ]
    write_eval_report(tmp_path / "report.html", "d", result, {}, {})
    first, second = curves(page_of(str(tmp_path)), "ROC of nut, 1 shot, seed 0: b")
    assert first == [] and second


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=3000).filter(lambda x: 0 < sum(x) < len(x)))
def test_thinned_curves_are_small_and_leave_nothing_out(labels: list[bool]) -> None:
    curve = roc_curve(range(len(labels)), labels)
    x, y = eval_report._thin(curve)
    assert len(x) <= 803 and (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    kept = np.stack([x, y])[:, :, None] - np.stack(curve)[:, None, :]
    assert np.abs(kept).max(axis=0).min(axis=0).max() <= 1 / 400 + 1e-12


# ---- in a browser


@pytest.mark.skipif(not CHROMIUM, reason="needs: apt-get install chromium")
def test_a_browser_shows_the_pictures(here: Path) -> None:
    """The page's policy allows the pictures, and nothing that a name could inject."""
    ok("eval", "parts/bolt", "--shots", "1")
    picture = here / "screen.png"
    command = [
        str(CHROMIUM),
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={here / 'profile'}",
        "--window-size=1200,2400",
        f"--screenshot={picture}",
        (here / "eval-out/report.html").as_uri(),
    ]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    screen = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    red = (np.abs(screen - (250, 20, 20)) < 30).all(axis=2).sum()
    assert red > 3 * 1000, "three parts with a red patch"
    assert (screen[0, 0] == (246, 247, 249)).all(), "the style sheet holds"
