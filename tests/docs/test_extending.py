"""The examples of docs/extending work as packages of somebody else, from the command line."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from agreement import assert_agrees
from command_line import PATIENCE, environment, make_line
from doc_pages import blocks
from onnx import TensorProto, helper, numpy_helper
from paths import PACKAGES, ROOT, RUNTIME, python_path
from result_rows import frame, result_row
from tiny_bundle import STRIDE, selftest_content

from anoco_edge.bundle import InputContract, create_bundle
from anoco_edge.bundle.schema import Backbone, Weights
from anoco_edge.errors import PictureError
from anoco_edge.native.library import find_library
from anoco_edge.results import RunInfo
from anoco_edge.results.rows import FailedRow
from anoco_edge.scoring import METRICS, Metric, Parameters, References, ScorerOptions, reference
from anoco_edge.scoring.onnx_scorer import scoring_model
from anoco_edge.teaching import NewPicture, Settings, Teacher

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = {"sink": "andon", "source": "archive", "scorer": "dense", "engine": "provider"}


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by their names."""
    return {one.title: one.text for one in blocks(f"docs/extending/{page}.md") if one.title}


def install(page: str, site: Path) -> dict[str, str]:
    """Put the package of a page into a folder, as pip would; returns the environment to use it."""
    files = files_of(page)
    (project,) = (name for name in files if name.endswith("pyproject.toml"))
    facts = tomllib.loads(files.pop(project))
    for name, text in files.items():
        (site / Path(name).name).write_text(text, encoding="utf-8")
    modules = {Path(name).stem for name in files}
    assert modules == set(facts["tool"]["setuptools"]["py-modules"]), "pip would leave one out"
    name, version = facts["project"]["name"], facts["project"]["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in facts["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return {**os.environ, "PYTHONPATH": python_path(site, *PACKAGES)}


def run(
    env: dict[str, str], folder: Path, *arguments: object, code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "anoco_edge", *map(str, arguments)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_line(tmp_path_factory.mktemp("template"))


@pytest.fixture
def line(template: Path, tmp_path: Path) -> Path:
    """A folder with line.anoco, good/ and parts/."""
    return shutil.copytree(template, tmp_path / "line")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_doctor_finds_the_packages_of_all_pages(site: Path, tmp_path: Path) -> None:
    for page in NAMES:
        env = install(page, site)
    env = {**env, "ANOCO_PROVIDER": "CPUExecutionProvider"}
    rows = json.loads(run(env, tmp_path, "doctor", "--no-camera", "--json").stdout)
    found = {(row["group"], row["name"]): row["state"] for row in rows}
    assert {found[f"{page}s", name] for page, name in NAMES.items()} == {"ok"}


def test_the_sink_switches_the_lamp(
    site: Path, line: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = install("sink", site)
    run(env, line, "infer", "line.anoco", "parts", "--sink", "andon=lamp")
    assert (line / "lamp").read_text() == "0", "the lamp is off at the end"
    refused = run(env, line, "infer", "line.anoco", "parts", "--sink", "andon", code=2)
    assert "the sink 'andon' needs a file; write andon=FILE" in refused.stderr

    monkeypatch.syspath_prepend(site)
    lamp = tmp_path / "lamp"
    sink = importlib.import_module("anoco_edge_andon").open_sink(str(lamp), RunInfo())
    broken = FailedRow.from_error(1, "a.png", PictureError("a.png is cut off"))
    for row, state in (
        (result_row(0), "0"),
        (result_row(1, verdict="anomalous"), "1"),
        (broken, "1"),
    ):
        sink.write(row, frame(), None)
        assert lamp.read_text() == state


def test_the_source_reads_an_archive(site: Path, line: Path) -> None:
    env = install("source", site)
    with zipfile.ZipFile(line / "monday.zip", "w") as pack:
        for path in sorted((line / "parts").iterdir()):
            pack.write(path, path.name)
        pack.writestr("zzz.png", b"not a picture")
        pack.writestr("notes.txt", b"not looked at")
    done = run(env, line, "infer", "line.anoco", "monday.zip", "--json", code=1)
    rows = json.loads(done.stdout)["results"]
    assert [row["source"] for row in rows[:3]] == [f"monday.zip#good{k}.png" for k in range(3)]
    assert all(row["score"] > 0 for row in rows[:3])
    assert len(rows) == 4 and "not a picture" in rows[3]["error"]
    limited = run(env, line, "infer", "line.anoco", "monday.zip", "--limit", 2, "--json")
    assert len(json.loads(limited.stdout)["results"]) == 2
    taught = run(env, line, "infer", "line.anoco", "monday.zip", "--teach", 2, "--limit", 3)
    assert "taught 2 references" in taught.stderr
    gone = run(env, line, "infer", "line.anoco", "no.zip", code=1)
    assert "no.zip cannot be read" in gone.stderr


@pytest.mark.parametrize("metric", METRICS)
def test_the_scorer_agrees_with_the_reference(
    metric: Metric, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("scorer", site)
    monkeypatch.syspath_prepend(site)
    module = importlib.import_module("anoco_edge_dense")
    rng = np.random.default_rng(3)
    for scale in (1.0, 30.0):
        good, query = scale * rng.normal(size=(2, 150, 12)).astype(np.float32)
        good[:, -1] = 0
        query[0], query[1] = good[5], -good[5]
        query[2], query[2, -1] = good[5], 400 * scale  # resembles nothing: the floor counts
        bank, _ = References.of(good)
        options = (bank, Parameters(metric=metric), ScorerOptions())
        found, exact = (m.open_scorer(*options).score(query) for m in (module, reference))
        assert_agrees(found, exact, query, metric=metric)


def test_the_scorer_inspects(site: Path, line: Path) -> None:
    env = install("scorer", site)
    ours, theirs = (
        json.loads(run(env, line, "infer", "line.anoco", "parts", "--json", *more).stdout)
        for more in (("--scorer", "dense"), ("--scorer", "reference"))
    )
    for row, expected in zip(ours["results"], theirs["results"], strict=True):
        assert row["score"] == pytest.approx(expected["score"], rel=1e-4)
        assert row["evidence"]["reference"] == expected["evidence"]["reference"]


def test_the_engine_runs_and_refuses(site: Path, line: Path) -> None:
    env = install("engine", site)
    ours = ("infer", "line.anoco", "parts", "--engine", "provider", "--json")
    cpu = {**env, "ANOCO_PROVIDER": "CPUExecutionProvider"}
    rows = json.loads(run(cpu, line, *ours).stdout)["results"]
    plain = json.loads(run(env, line, *ours[:3], "--json").stdout)["results"]
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in plain]
    wrong = run({**env, "ANOCO_PROVIDER": "Abacus"}, line, *ours, code=3)
    assert "ANOCO_PROVIDER is 'Abacus'" in wrong.stderr


@pytest.mark.full
def test_the_recipe_exports(tmp_path: Path) -> None:
    package = shutil.copytree(ROOT / "export" / "anoco_edge_export", tmp_path / "anoco_edge_export")
    files = files_of("backbone")
    assert list(files) == ["recipes/resnet18.toml"]
    (package / "recipes" / "resnet18.toml").write_text(files["recipes/resnet18.toml"])
    # An editable install finds its own package first, so the copy is put in its place.
    start = (
        "import sys, importlib.util as u; from pathlib import Path\n"
        "file = Path(sys.argv.pop(1), '__init__.py')\n"
        "found = u.spec_from_file_location('anoco_edge_export', file, "
        "submodule_search_locations=[str(file.parent)])\n"
        "module = sys.modules['anoco_edge_export'] = u.module_from_spec(found)\n"
        "found.loader.exec_module(module)\n"
        "from anoco_edge.cli import main; main()"
    )
    arguments = "export --backbone resnet18 --weights random:0 --size 128 --out check.anoco --json"
    done = subprocess.run(
        [sys.executable, "-c", start, package, *arguments.split()],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "check.anoco" / "manifest.json").read_text())
    assert manifest["backbone"]["id"] == "resnet18" and manifest["input"]["dim"] == 384


# ---- the native backend


def mean_color_graph(side: int) -> bytes:
    """A graph that gives the mean red, green and blue of each patch, and 1."""
    weights = np.vstack([np.eye(3) / 255, np.zeros((1, 3))]).reshape(4, 3, 1, 1)
    constants = {
        "weights": weights.astype(np.float32),
        "bias": np.float32([0, 0, 0, 1]),
        "shape": np.array([0, 4, -1], np.int64),
    }
    patch: dict[str, Any] = {"kernel_shape": [STRIDE, STRIDE], "strides": [STRIDE, STRIDE]}
    nodes = [
        helper.make_node("Cast", ["pixels"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["nchw"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["nchw", "weights", "bias"], ["colors"]),
        helper.make_node("AveragePool", ["colors"], ["grid"], **patch),
        helper.make_node("Reshape", ["grid", "shape"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["features"], perm=[0, 2, 1]),
    ]
    patches = (side // STRIDE) ** 2
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["b", side, side, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["b", patches, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def make_mean_color_bundle(path: Path) -> Path:
    """A bundle whose backbone gives mean colors; its product knows four shades of gray."""
    side = 96
    model = mean_color_graph(side)
    grid = side // STRIDE
    bundle = create_bundle(
        path,
        backbone=Backbone(
            id="means",
            architecture="means",
            tap="features",
            feature_norm="none",
            pooling="none",
            weights=Weights(source="a test", sha256="0" * 64, license="Apache-2.0"),
        ),
        contract=InputContract(width=side, height=side, stride=STRIDE, rows=grid, cols=grid, dim=4),
        parity={},
        tools={},
        files={
            "backbone.onnx": model,
            "scoring.onnx": scoring_model(),
            "selftest.safetensors": selftest_content(model, side, side),
            "LICENSES/NOTICE": b"None.\n",
        },
    )
    shades = [np.full((side, side, 3), 120 + 4 * k, np.uint8) for k in range(4)]
    good = [NewPicture.from_array(f"{k}.png", shade) for k, shade in enumerate(shades)]
    Teacher.open(bundle).enroll(good, settings=Settings({}, threshold=1e-6))
    return path


@pytest.fixture(scope="module")
def mean_color(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the page, linked to the library that Python uses."""
    library = find_library()
    if library is None or shutil.which("c++") is None:
        pytest.skip("the native library and a compiler are needed")
    folder = tmp_path_factory.mktemp("backend")
    (source,) = files_of("native-backend").items()
    (folder / source[0]).write_text(source[1])
    strict = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    library = library.resolve()
    linked = [library, f"-Wl,-rpath,{library.parent}", "-o", folder / "mean_color"]
    done = subprocess.run(
        ["c++", *strict, f"-I{RUNTIME / 'include'}", folder / source[0], *linked],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "mean_color"


def test_the_native_backend_inspects(mean_color: Path, tmp_path: Path) -> None:
    bundle = make_mean_color_bundle(tmp_path / "means.anoco")
    done = subprocess.run([mean_color, bundle], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "anomalous, 1 region(s)\n"), done.stderr


def test_the_native_backend_refuses_another_backbone(mean_color: Path, template: Path) -> None:
    done = subprocess.run([mean_color, template / "line.anoco"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "mean-color has 4 features per patch" in done.stderr
