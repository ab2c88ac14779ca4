"""The published figures are complete and consistent, and stand beside the measured ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import fails, ok
from pydantic import ValidationError
from tiny_bundle import make_tiny_bundle
from tiny_dataset import make_category

from anoco_edge_calibration.evaluation.paper import Paper, load_paper, published_rows
from anoco_edge_calibration.evaluation.tables import (
    METRICS,
    EvaluationRow,
    evaluation_markdown,
    mean_rows,
)

TABLES = {
    "main": 42,
    "ablation": 10,
    "backbones": 22,
    "oct2017": 18,
    "latency": 6,
    "message-passing": 12,
    "metrics": 6,
    "real-iad": 18,
    "ad-dinov3": 4,
    "generality": 2,
    "categories": 18,
    "memory": 2,
}

# Sums of every column in its order, with dashes as zero, added up from the paper's source and not
# from published.json. Only two errors that cancel in one column would go unnoticed.
TOTALS = {
    "main": [
        *(1952.5, 1734.1, 1412.7, 2005.9, 1873.8, 864.4),
        *(1850.9, 1610.0, 1286.9, 2037.8, 1841.0, 685.4),
    ],
    "ablation": [
        *(468.2, 483.1, 474.6, 480.8, 466.0, 298.8),
        *(418.7, 432.1, 424.9, 486.1, 461.6, 218.0),
    ],
    "backbones": [
        *(1011.7, 962.0, 943.2, 1038.1, 959.6, 558.4),
        *(963.5, 893.0, 858.4, 1068.2, 960.7, 444.1),
    ],
    "oct2017": [1610.3, 1710.8],
    "latency": [5001.8, 72.1, 8.8, 3.0],
    "message-passing": [515.5, 560.2, 421.8, 567.1],
    "metrics": [293.2, 292.9, 277.8, 296.0],
    "real-iad": [1165.7, 1567.1],
    "ad-dinov3": [189.3, 194.3],
    "generality": [186.9, 193.6],
    "categories": [1763.1, 1784.3, 1746.7, 1759.6, 1717.5, 1168.1],
    "memory": [12.0],
}


def flat(table: str, **wanted: Any) -> list[dict[str, Any]]:
    rows = load_paper().table(table).flat()
    return [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]


def test_every_table_is_there_and_flat() -> None:
    assert {table.id: len(table.flat()) for table in load_paper().tables} == TABLES
    (row,) = flat("main", dataset="VisA", shots=4, method="ANoCo")
    assert [row[m] for m in METRICS] == [0.952, 0.951, 0.917, 0.988, 0.957, 0.542]
    (row,) = flat("main", dataset="MVTec-AD", shots=1, method="PromptAD")
    assert [row[m] for m in METRICS] == [0.946, None, None, 0.959, 0.879, None]
    (row,) = flat("latency", backbone="CLIP-B-P", shots=4)
    assert (row["rival_ms"], row["anoco_ms"]) == (1803.6, 13.8) and "dataset" not in row


def test_all_rivals_are_in_the_main_table_at_every_number_of_shots() -> None:
    rivals = ["SPADE", "PatchCore", "WinCLIP", "PromptAD", "KAG-Prompt", "INP-Former", "ANoCo"]
    for shots in (1, 2, 4):
        rows = flat("main", shots=shots, dataset="MVTec-AD")
        assert [row["method"] for row in rows] == rivals


@pytest.mark.parametrize("name", TOTALS)
def test_columns_add_up_to_the_papers(name: str) -> None:
    table = load_paper().table(name)
    columns = list(zip(*table.rows, strict=True))[len(table.keys) :]
    assert [sum(v or 0 for v in column) for column in columns] == pytest.approx(TOTALS[name])


def test_tables_that_repeat_each_other_agree() -> None:
    """A mistake in copying a number would break one of these."""
    anoco = {d: flat("main", dataset=d, shots=1, method="ANoCo")[0] for d in ("MVTec-AD", "VisA")}
    for table in ("ablation", "backbones", "message-passing", "metrics", "ad-dinov3"):
        for row in flat(table):
            same = row["method"] in ("ANoCo", "ANoCo, product") and row.get("shots", 1) == 1
            if same and row.get("backbone", "DINOv3-L") == "DINOv3-L":
                own = anoco[row["dataset"]]
                assert all(row[m] == own[m] for m in METRICS if m in row), (table, row)
    for row in flat("backbones"):
        if row["method"] not in ("ANoCo", "k-NN"):
            (main,) = flat("main", dataset=row["dataset"], shots=1, method=row["method"])
            assert all(row[m] == main[m] for m in METRICS)


def test_means_over_categories_are_those_of_the_rows() -> None:
    rows = {row["category"]: row for row in flat("categories")}
    names = [name for name in rows if not name.startswith("mean")]
    assert len(names) == 15
    for mean, over in (("mean of textures", names[:5]), ("mean of objects", names[5:])):
        for metric in METRICS:
            expected = sum(rows[name][metric] for name in over) / len(over)
            assert rows[mean][metric] == pytest.approx(expected, abs=0.0011), (mean, metric)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["rows"][0].pop(),
        lambda t: t["rows"][0].__setitem__(-1, 140.5),
        lambda t: t["rows"][0].__setitem__(-1, "54,2"),
        lambda t: t["rows"].append(t["rows"][0]),
        lambda t: t["metrics"].__setitem__(0, "image_auc"),
        lambda t: t.update(note="?"),
    ],
)
def test_data_that_is_not_whole_is_refused(change: Any) -> None:
    document = json.loads(load_paper().model_dump_json(exclude_none=True))
    Paper.model_validate(document)
    change(document["tables"][0])
    with pytest.raises(ValidationError):
        Paper.model_validate(document)


def test_paper_only_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = ok("eval", "--paper-only")
    for text in (
        "Table 1",
        "INP-Former",
        "k-NN + Non-Bip.",
        "OCT2017",
        "InCTRL",
        "1803.6",
        "zipper",
    ):
        assert text in ran.out
    rows = ok("eval", "--paper-only", "--json").json
    assert len(rows) == sum(TABLES.values())
    assert rows[0] == flat("main")[0]
    assert list(tmp_path.iterdir()) == []
    assert "leave out the data set" in fails(2, "eval", "parts", "--paper-only")
    assert "which data set?" in fails(2, "eval")


def row(category: str, shots: int, value: float) -> EvaluationRow:
    return EvaluationRow("x", category, shots, 0, "anoco", dict.fromkeys(METRICS, value))


def test_published_rows_stand_below_measured_ones_and_are_never_bold() -> None:
    from dataclasses import replace

    measured = [row("hazelnut", 1, 0.5), replace(row("hazelnut", 1, 0.4), scorer="knn-l2")]
    printed = EvaluationRow("x", "hazelnut", 1, "mean", "paper: ANoCo", dict.fromkeys(METRICS, 0.9))
    printed = replace(printed, published=True)
    lines = evaluation_markdown([printed, *measured, *mean_rows(measured)]).splitlines()
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["anoco", "knn-l2", "paper: ANoCo"]
    assert "**50.0**" in lines[2] and "**" not in lines[3] + lines[4] and "90.0" in lines[4]
    assert printed.to_dict()["published"] is True and "published" not in measured[0].to_dict()


def test_a_category_of_mvtec_has_its_published_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tiny_bundle(tmp_path / "line.anoco")
    make_category(tmp_path / "toys" / "hazelnut", 0)
    ran = ok("eval", "toys", "--shots", "1,2", "--paper", "--json")
    (published,) = [row for row in ran.json if row.get("published")]
    assert (published["category"], published["shots"]) == ("hazelnut", 1)
    assert published["scorer"] == "paper: ANoCo" and published["pixel_f1max"] == 0.812
    assert "published means are of all 15 categories of MVTec-AD and left out" in ran.err
    shown = ok("eval", "toys", "--shots", "1", "--paper").out
    assert "paper: ANoCo" in shown and "81.2" in shown
    assert "| hazelnut | 1 | paper: ANoCo |" in Path("eval-out/results.md").read_text()


def test_all_categories_have_the_published_means_of_all_methods() -> None:
    from anoco_edge_calibration.evaluation.dataset import Category, DataSet

    names = [r["category"] for r in flat("categories") if "mean" not in r["category"]]
    found = published_rows(DataSet("mvtec", tuple(Category(n, (), ()) for n in names)), (1, "full"))
    means = {(row.shots, row.scorer): row.figures for row in found.rows if row.category == "mean"}
    assert means[1, "paper: SPADE"]["image_auroc"] == 0.81
    assert means[1, "paper: k-NN (Mahl.)"]["pixel_pro"] == 0.928
    assert means["full", "paper: ANoCo (DINOv3-L)"]["image_auroc"] == 0.994
    assert means[1, "paper: message passing, 2 rounds"]["pixel_auroc"] == 0.922
    assert (2, "paper: SPADE") not in means
    assert len(found.rows) == len({(r.category, r.shots, r.scorer) for r in found.rows})
    # Rows that are in several tables hold everything that any of the tables says.
    assert None not in means[1, "paper: ANoCo"].values()


@pytest.mark.parametrize(
    ("layout", "count", "name"), [("visa", 12, "VisA"), ("real-iad", 30, "Real-IAD")]
)
def test_other_data_sets_are_known_by_their_layout(layout: str, count: int, name: str) -> None:
    from anoco_edge_calibration.evaluation.dataset import Category, DataSet

    whole = DataSet("d", tuple(Category(str(n), (), ()) for n in range(count)), layout)
    found = published_rows(whole, (4,))
    assert {row.scorer for row in found.rows} >= {"paper: SPADE", "paper: ANoCo"}
    assert all(row.shots == 4 for row in found.rows) and name in found.remarks[0]


def test_a_data_set_that_the_paper_does_not_know_has_no_rows() -> None:
    from anoco_edge_calibration.evaluation.dataset import Category, DataSet

    found = published_rows(DataSet("piped", (Category("bdp01", (), ()),)), (1,))
    assert found.rows == [] and "the paper has no figures of piped" in found.remarks[0]
