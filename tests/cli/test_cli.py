"""All other commands (teaching, listing, exporting, the demo) run as users type them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from command_line import Ran, fails, ok, run_cli, run_process, tree
from PIL import Image
from tiny_bundle import make_tiny_bundle, write_good_pictures

from anoco_edge import __version__
from anoco_edge.bundle import Bundle, create_bundle
from anoco_edge.bundle.parity_report import ParityReport
from anoco_edge.demo.render import render
from anoco_edge.detector import Detector
from anoco_edge.errors import ParityError
from anoco_edge.images.decode import read_picture
from anoco_edge.images.preprocess import prepare
from anoco_edge.scoring.onnx_session import open_session
from anoco_edge_export import ExportedBackbone, ExportedBundle

# --- help -----------------------------------------------------------------------------------------


def commands(app: typer.Typer, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """List every command of the app, including those inside groups."""
    found = []
    for command in app.registered_commands:
        assert command.callback is not None
        found.append((*above, command.name or command.callback.__name__))
    for group in app.registered_groups:
        assert group.typer_instance is not None and group.name is not None
        found += commands(group.typer_instance, (*above, group.name))
    return found


def all_commands() -> list[tuple[str, ...]]:
    from anoco_edge.cli.app import make_app

    return commands(make_app())


def test_every_command_of_the_design_is_there() -> None:
    first = {command[0] for command in all_commands()}
    assert first == {
        *("demo", "backbones", "export", "build", "enroll", "calibrate", "infer", "package"),
        *("tune", "bench", "eval"),
        *("info", "sign", "verify", "doctor", "device-report"),
        *("references", "product", "serve", "station", "replay"),
    }
    assert {c[1] for c in all_commands() if c[0] == "references"} == {
        *("list", "remove", "undo", "prune")
    }
    assert {c[1] for c in all_commands() if c[0] == "product"} == {"list", "set"}


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_help_ends_with_an_example(command: tuple[str, ...]) -> None:
    ran = ok(*command, "--help")
    text = " ".join(re.sub(r"[^\x20-\x7e]", " ", ran.out).split())
    tail = text.rpartition("Example: ")[2]
    assert tail.startswith(f"anoco-edge {' '.join(command)}"), tail
    assert "╭" not in ran.out.rpartition("Example:")[2], "nothing comes after it"
    assert ok(*command, "-h").out == ran.out


def test_version_and_no_command() -> None:
    assert ok("--version").out == f"anoco-edge {__version__}\n"
    assert "anoco-edge demo" in ok("--help").out
    assert "Usage: anoco-edge" in run_cli().out
    assert run_process("--version") == Ran(0, f"anoco-edge {__version__}\n", "")


# --- one product's life ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    make_tiny_bundle(folder / "line.anoco")
    write_good_pictures(folder / "good", 5)
    ok("enroll", folder / "line.anoco", *(folder / f"good/good{k}.png" for k in range(3)))
    return folder


def test_enroll_says_what_it_did(here: Path) -> None:
    ran = ok("enroll", "line.anoco", "good/good3.png")
    assert "product default, generation 2: 4 references (1 new)" in ran.out
    assert "provisional threshold" in ran.out
    assert "anoco-edge references undo line.anoco --product default" in ran.err
    ran = ok("enroll", "line.anoco", "good/good4.png", "--json")
    assert ran.json["references"] == [f"good{k}.png" for k in range(5)]
    assert (ran.json["generation"], ran.json["added"]) == (3, ["good4.png"])
    assert ran.json["threshold"]["kind"] == "provisional" and ran.json["threshold"]["value"] > 0


@pytest.mark.parametrize("command", ["enroll", "product set"])
def test_every_setting_arrives(here: Path, command: str) -> None:
    mask = Image.new("L", (96, 80))
    mask.putpixel((0, 0), 255)
    mask.save("mask.png")
    settings = ["--roi", "24,20,48,40", "--mask", "mask.png", "--min-area", "12"]
    settings += ["--any-size", "--pooling", "top5", "--metric", "l2", "--lambda", "2"]
    settings += ["--floor", "0.1", "--bank-dtype", "float32"]
    pictures = ["good/good3.png"] if command == "enroll" else []
    ok(*command.split(), "line.anoco", *pictures, *settings)
    (product,) = ok("info", "line.anoco", "--json").json["products"]
    assert product["region"]["points"] == [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]]
    assert product["mask"]["path"].startswith("mask-")
    wanted = {"min_area": 12, "any_size": True, "pooling": "top5", "metric": "l2", "lambda": 2}
    wanted |= {"floor": 0.1, "bank_dtype": "float32"}
    assert {k: product[k] for k in wanted} == wanted


def test_a_relative_lambda_is_set_shown_and_replaced(here: Path) -> None:
    ok("product", "set", "line.anoco", "--lambda", "0.5x")
    ran = ok("info", "line.anoco", "--json")
    (product,) = ran.json["products"]
    assert (product["lambda"], product["lambda_kind"]) == (0.5, "relative")
    bundle = Bundle.open("line.anoco")
    norm = bundle.bank(bundle.product()).references.median_norm
    assert product["effective_lambda"] == pytest.approx(0.5 * norm)
    shown = ok("info", "line.anoco").out
    assert f"lambda 0.5 x the bank's median norm of {norm:.4g} is {0.5 * norm:.4g}" in shown
    assert "0.5x" in ok("product", "list", "line.anoco").out
    ok("product", "set", "line.anoco", "--lambda", "2")
    (product,) = ok("info", "line.anoco", "--json").json["products"]
    assert product["lambda"] == 2
    assert "lambda_kind" not in product and "effective_lambda" not in product


def test_ctrl_c_while_enrolling(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anoco_edge.teaching.teacher.commit", interrupted)
    before = tree(here)
    ran = run_cli("enroll", "line.anoco", "good/good3.png")
    assert ran.code == 130 and "Traceback" not in ran.err and tree(here) == before


def test_references_list(here: Path) -> None:
    ok("enroll", "line.anoco", "good/good3.png")
    listed = ok("references", "list", "line.anoco", "--json").json
    assert [r["name"] for r in listed["references"]] == [f"good{k}.png" for k in range(4)]
    assert (listed["product"], listed["generation"]) == ("default", 2)
    current = {g["generation"]: g["current"] for g in listed["generations"]}
    assert current == {1: False, 2: True}
    ran = ok("references", "list", "line.anoco")
    assert "good3.png" in ran.out and "96x80" in ran.out and "2 (now)" in ran.out


def test_remove_undo_prune(here: Path) -> None:
    state = Path("line.anoco/products/default/product.json")
    first = state.read_bytes()
    ran = ok("references", "remove", "line.anoco", "good1.png", "--json")
    assert ran.json["references"] == ["good0.png", "good2.png"] and ran.json["generation"] == 2
    assert (
        "generation 3: 1 reference\n" in ok("references", "remove", "line.anoco", "good0.png").out
    )
    ok("references", "undo", "line.anoco")
    ran = ok("references", "undo", "line.anoco", "--json")
    assert ran.json["generation"] == 1 and len(ran.json["references"]) == 3
    assert state.read_bytes() == first, "undo goes back to the very same state"
    ran = ok("references", "prune", "line.anoco", "--json")
    assert ran.json["product"] == "default"
    assert sorted(Path(p).name for p in ran.json["deleted"]) == [
        *("bank-2.safetensors", "bank-3.safetensors", "product-2.json", "product-3.json")
    ]
    assert "deleted 0 files" in ok("references", "prune", "line.anoco").out
    assert ok("verify", "line.anoco", "--json").json["strangers"] == []
    assert "first generation" in fails(2, "references", "undo", "line.anoco")


def test_undo_in_words(here: Path) -> None:
    ok("enroll", "line.anoco", "good/good3.png")
    ran = ok("references", "undo", "line.anoco")
    assert "back at generation 1: 3 references" in ran.out


def test_product_list_and_set(here: Path) -> None:
    before = ok("product", "list", "line.anoco", "--json").json[0]["threshold"]["value"]
    ran = ok("product", "set", "line.anoco", "--threshold", "0.5", "--json")
    assert ran.json["threshold"]["value"] == 0.5 and ran.json["threshold"]["kind"] == "manual"
    ok("product", "set", "line.anoco", "--roi", "0,0,48,80")
    product = ok("product", "list", "line.anoco", "--json").json[0]
    assert product["region"]["points"][2] == [0.5, 1.0] and product["generation"] == 3
    assert product["threshold"]["value"] == 0.5, "a threshold of one's own stays"
    ran = ok("product", "list", "line.anoco")
    assert "manual 0.5" in ran.out and "4 points" in ran.out
    ok("product", "set", "line.anoco", "--roi", "none", "--threshold", "0")
    product = ok("product", "list", "line.anoco", "--json").json[0]
    assert product["region"] is None and product["threshold"]["kind"] == "provisional"
    assert product["threshold"]["value"] == pytest.approx(before)


def test_a_mask_put_on_and_taken_away(here: Path) -> None:
    mask = Image.new("L", (96, 80))
    mask.paste(255, (0, 0, 48, 80))
    mask.save("mask.png")
    ok("product", "set", "line.anoco", "--mask", "mask.png")
    bundle = Bundle.open("line.anoco")
    assert set(bundle.bank(bundle.product()).col.tolist()) == {2, 3}
    ok("product", "set", "line.anoco", "--mask", "none")
    assert bundle.product().mask is None
    assert set(bundle.bank(bundle.product()).col.tolist()) == {0, 1, 2, 3}


def test_products_of_an_empty_bundle(tmp_path: Path) -> None:
    bundle = make_tiny_bundle(tmp_path / "new.anoco").path
    assert "no products yet" in ok("product", "list", bundle).out
    assert ok("product", "list", bundle, "--json").json == []
    assert "no products yet" in ok("info", bundle).out


def test_info(here: Path) -> None:
    report = ok("info", "line.anoco", "--json").json
    assert report["backbone"]["id"] == "tiny" and report["input"]["width"] == 64
    assert [p["name"] for p in report["products"]] == ["default"]
    ran = ok("info", "line.anoco")
    assert "64x64 (stretch)" in ran.out and "tests/tiny_bundle.py" in ran.out


def test_verify(here: Path) -> None:
    Path("line.anoco/products/default/notes.txt").write_text("mine")
    ran = ok("verify", "line.anoco", "--json")
    assert ran.json["strangers"] == ["products/default/notes.txt"]
    assert {"manifest.json", "backbone.onnx", "products/default/bank-1.safetensors"} < set(
        ran.json["verified"]
    )
    assert "notes.txt does not belong" in ran.err
    known = [name for name in tree(Path("line.anoco")) if not name.endswith("notes.txt")]
    assert sorted(ran.json["verified"]) == sorted(known)
    assert f"{len(known)} files, all as they were written" in ok("verify", "line.anoco").out


def test_brackets_in_names_are_shown_as_they_are(here: Path) -> None:
    Path("good/good3.png").rename("good/nut[red].png")
    Path("line.anoco").rename("line[b].anoco")
    ok("enroll", "line[b].anoco", "good/nut[red].png")
    assert "nut[red].png" in ok("references", "list", "line[b].anoco").out
    assert "line[b].anoco" in ok("info", "line[b].anoco").out
    assert "line[b].anoco: " in ok("verify", "line[b].anoco").out


# --- export ---------------------------------------------------------------------------------------

BACKBONE = ("--backbone", "efficientnet-lite0")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render five good washers and a defective one."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "good").mkdir()
    for seed in range(5):
        Image.fromarray(render("washer", seed).rgb).save(folder / "good" / f"{seed}.png")
    Image.fromarray(render("washer", 9, "scratch").rgb).save(folder / "scratch.png")
    return folder


@pytest.fixture(scope="module")
def exported(parts: Path) -> tuple[Path, Ran]:
    """Export the real backbone at a small size, and enroll references at the same time."""
    target = parts / "washer.anoco"
    refs = ("--refs", parts / "good", "--shots", "4", "--seed", "1", "--product", "washer")
    return target, ok("export", *BACKBONE, "--size", "128", *refs, "--out", target, "--json")


def test_export_and_teach_at_once(exported: tuple[Path, Ran], parts: Path) -> None:
    target, ran = exported
    report = ran.json
    assert report["bundle"] == str(target) and report["backbone"]["id"] == "efficientnet-lite0"
    assert (report["input"]["width"], report["input"]["rows"]) == (128, 16)
    assert report["parity"]["checks"][0]["measured"]["min_cosine"] > 0.999
    # The parity check used the references and the self-test's own picture.
    pictures = ["picture 1", "picture 2", "picture 3", "rendered 0"]
    assert report["parity"]["pictures"] == pictures
    assert report["taught"]["product"] == "washer" and len(report["taught"]["added"]) == 4
    assert set(report["taught"]["added"]) < {f"{k}.png" for k in range(5)}
    ok("verify", target)
    result = ok("infer", target, parts / "scratch.png", "--json").json["results"][0]
    assert result["verdict"] == "anomalous" and result["ratio"] > 1


def test_the_draw_of_shots_is_seeded(here: Path) -> None:
    from anoco_edge.cli.requests.export import read_pictures

    draws = [[p.name for p in read_pictures(["good"], 3, seed)] for seed in (0, 0, *range(1, 8))]
    assert draws[0] == draws[1] and len({tuple(draw) for draw in draws}) > 2
    assert all(draw == sorted(set(draw)) and len(draw) == 3 for draw in draws)


def test_an_existing_bundle_is_replaced_only_when_asked(
    exported: tuple[Path, Ran], tmp_path: Path
) -> None:
    bundle = shutil.copytree(exported[0], tmp_path / "washer.anoco")
    before = tree(bundle)
    small = ("export", *BACKBONE, "--size", "64", "--out", bundle)
    assert "--overwrite" in fails(2, *small)
    assert tree(bundle) == before
    ran = ok(*small, "--overwrite")
    assert "64x64" in ran.out and "torch agrees" in ran.out and "anoco-edge enroll" in ran.err
    assert Bundle.open(bundle).products() == [] and Bundle.open(bundle).manifest.input.width == 64
    assert [path.name for path in tmp_path.iterdir()] == ["washer.anoco"]


def test_a_graph_that_differs_from_torch_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*args: object, **options: object) -> None:
        raise ParityError("the graph differs from torch: worst cosine 0.5", hint="report this")

    monkeypatch.setattr("anoco_edge_export.export.check_parity", differs)
    monkeypatch.chdir(tmp_path)
    line = fails(5, "export", *BACKBONE, "--size", "64")
    assert "worst cosine 0.5" in line and list(tmp_path.iterdir()) == []


def test_references_that_do_not_fit_together(
    exported: tuple[Path, Ran], parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that was asked for with references is not written without them."""
    import anoco_edge_export

    target = tmp_path / "new.anoco"

    def without_torch(
        backbone: str,
        path: Path,
        *_: object,
        prepare: Callable[[Bundle], None],
        overwrite: bool,
        **options: object,
    ) -> ExportedBundle:
        known = Bundle.open(exported[0])
        manifest = known.manifest
        bundle = create_bundle(
            path,
            backbone=manifest.backbone,
            contract=manifest.input,
            parity=manifest.parity,
            tools={},
            files={f.path: known.read(f) for f in manifest.files},
            overwrite=overwrite,
            prepare=prepare,
        )
        report = ParityReport.from_json(manifest.parity)
        made = ExportedBackbone(manifest.backbone, manifest.input, report, {}, {}, "", "", (5, 7))
        return ExportedBundle(bundle, made, ())

    monkeypatch.setattr(anoco_edge_export, "export_bundle", without_torch)
    Image.new("RGB", (400, 100)).save(tmp_path / "wide.png")
    refs = ("--refs", parts / "good", "--refs", tmp_path / "wide.png")
    ran = run_cli("export", *BACKBONE, *refs, "--out", target)
    assert ran.code == 1 and "wide.png is 400x100" in ran.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["wide.png"]
    refs = ("--refs", parts / "good")
    assert ok("export", *BACKBONE, *refs, "--out", target, "--json").json["bundle"] == str(target)
    before = tree(target)
    assert Bundle.open(target).product().generation == 1
    # Only the new bundle itself finds this reference wrong, and the old bundle stays.
    refs = (*refs, "--tiles", "90x90")
    ran = run_cli("export", *BACKBONE, *refs, "--out", target, "--overwrite")
    assert ran.code != 0 and "new.anoco was not written" in ran.err and ".tmp-" not in ran.err
    assert tree(target) == before


def test_one_file_and_a_repository_of_a_bundle(
    exported: tuple[Path, Ran], parts: Path, tmp_path: Path
) -> None:
    file, models = tmp_path / "washer.onnx", tmp_path / "models"
    report = ok(
        "export", "--bundle", exported[0], "--single-file", file, "--triton", models, "--json"
    ).json
    assert report["single_file"] == str(file) and file.is_file()
    assert (models / "washer" / "config.pbtxt").is_file()
    assert (models / "washer" / "1" / "model.onnx").read_bytes() == file.read_bytes()
    session = open_session(file, "the file")
    detector = Detector.open(exported[0])
    for picture in (parts / "scratch.png", parts / "good" / "4.png"):
        pixels, _ = prepare(read_picture(picture), detector.bundle.manifest.input)
        (score,) = session.run(["score"], {"pixels": pixels[None]})
        assert float(score[0]) == pytest.approx(detector.inspect(picture).score, rel=1e-3)
    assert "anoco_edge.threshold" in (models / "washer" / "config.pbtxt").read_text()
    before = tree(exported[0])
    for options, words in (
        (("--single-file", exported[0] / "backbone.onnx"), "inside a bundle"),
        (("--single-file", file), "exists already"),
        (("--single-file", tmp_path), "is a folder"),
        (("--single-file", tmp_path / "b.onnx", "--precision", "fp16"), "leave out --precision"),
        (("--single-file", tmp_path / "b.onnx", "--size", "64"), "leave out --size"),
    ):
        assert words in fails(2, "export", "--bundle", exported[0], *options)
    assert tree(exported[0]) == before and not (tmp_path / "b.onnx").exists()
    said = ok("export", "--bundle", exported[0], "--single-file", tmp_path / "again.onnx")
    assert "pixels in, score, energy and map out" in said.out
    assert "--single-file" in fails(2, "export", "--bundle", exported[0])


def test_export_with_references_hands_over_at_once(parts: Path, tmp_path: Path) -> None:
    target, file = tmp_path / "a.anoco", tmp_path / "a.onnx"
    refs = ("--refs", parts / "good", "--shots", "2")
    ran = ok("export", *BACKBONE, "--size", "64", *refs, "--out", target, "--single-file", file)
    assert file.is_file() and "cos min" in ran.out and "2 references" in ran.out + ran.err


def test_an_unknown_backbone_suggests_what_is_meant() -> None:
    line = fails(2, "export", "--backbone", "efficientnet-light0")
    assert "efficientnet-light0" in line and "efficientnet-lite0" in line


def test_random_weights_are_refused_unless_allowed(parts: Path, tmp_path: Path) -> None:
    target = tmp_path / "random.anoco"
    options = ("--size", "64", "--weights", "random:3", "--refs", parts / "good", "--out", target)
    ran = ok("export", *BACKBONE, *options)
    assert "weights are random" in ran.err
    picture = parts / "scratch.png"
    assert "random weights" in fails(4, "infer", target, picture)
    assert ok("infer", target, picture, "--allow-random").code == 0
    assert "RANDOM" in ok("info", target).out
    assert "weights are random" in ok("enroll", target, picture).err
    handed = ok("export", "--bundle", target, "--single-file", tmp_path / "random.onnx")
    assert "weights are random" in handed.err


# --- demo -----------------------------------------------------------------------------------------

MATERIALS = ("washer", "cloth", "circuit")


@pytest.mark.parametrize("size", [(), pytest.param(("--size", "128"), marks=pytest.mark.full)])
def test_a_short_demo(
    size: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anoco_edge.cli.commands.demo.GOOD_PARTS", 2)
    monkeypatch.setattr("anoco_edge.cli.commands.demo.DEFECTIVE_PARTS", 2)
    monkeypatch.chdir(tmp_path)
    ran = ok("demo", *size, "--json")
    assert [m["material"] for m in ran.json["materials"]] == list(MATERIALS)
    for figures in ran.json["materials"]:
        assert figures["good_passed"] + figures["good_rejected"] == 2
        assert figures["defective_found"] + figures["defective_missed"] == 2
        assert 0 <= figures["image_auroc"] <= 1
    out = tmp_path / "demo-out"
    assert ran.json["out"] == "demo-out" and Bundle.open(out / "demo.anoco").products() == sorted(
        MATERIALS
    )
    with Image.open(out / "contact_sheet.png") as sheet:
        assert min(sheet.size) > 300
    page = (out / "report.html").read_text()
    for material in MATERIALS:
        assert f"{material}/report.html" in page and (out / material / "report.html").is_file()
        rows = (out / material / "results.jsonl").read_text().splitlines()
        assert len(rows) == len(list((out / "parts" / material / "line").rglob("*.png"))) == 4
        assert {json.loads(row)["verdict"] for row in rows} <= {"good", "anomalous"}
    refs = list((out / "parts/washer/references/good").iterdir())
    assert len(refs) == 4


@pytest.mark.full
def test_the_demo_separates_every_material(tmp_path: Path) -> None:
    ran = ok("demo", "--out", tmp_path / "demo")
    assert "anoco-edge enroll my.anoco" in ran.out and "AUROC" in ran.out
    ran = ok("demo", "--out", tmp_path / "demo", "--json")  # a second run replaces the first
    for figures in ran.json["materials"]:
        assert figures["image_auroc"] >= 0.95, figures
